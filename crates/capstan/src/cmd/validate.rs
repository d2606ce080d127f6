//! `capstan validate`: checks documents against the protocol's models, with a line for each.

mod judge;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_protocol::model::{self, MODELS};
use capstan_protocol::{Profile, nearest};

use super::Failure;
use judge::Judge;

/// Check documents against the protocol's models
///
/// Reads one JSON value per line, and prints a line for each: `{"ok":true,"value":<canonical
/// JSON>}` or `{"ok":false,"error":"<path>: <what is wrong>"}`. Exits with 1 if it refused any.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model's name (see --list), or `sse` for a captured SSE body, or `stream-json` for an
    /// agent CLI's output
    #[arg(long, short, required_unless_present = "list")]
    model: Option<String>,

    /// The edition of the data contract; by default v1, or the one that has the model
    #[arg(long, short, value_name = "v1|v2")]
    profile: Option<Profile>,

    /// Exit with 0 even if it refused documents
    #[arg(long)]
    report: bool,

    /// List the models
    #[arg(long)]
    list: bool,

    /// The file to read; standard input if absent or `-`
    file: Option<PathBuf>,
}

/// Names beside those of [`MODELS`].
const SSE: &str = "sse";
const STREAM_JSON: &str = "stream-json";

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut out = BufWriter::new(io::stdout().lock());
        let Some(name) = self.model.as_deref().filter(|_| !self.list) else {
            list(&mut out)?;
            return Ok(ExitCode::SUCCESS);
        };
        let judge = self.judge(name)?;
        let refused = judge.read(self.open()?, &mut out)?;
        out.flush()?;
        Ok(if refused && !self.report { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn judge(&self, name: &str) -> Result<Judge, Failure> {
        let profile = self.profile.unwrap_or_default();
        match name {
            SSE => return Ok(Judge::Sse(profile)),
            STREAM_JSON => return Ok(Judge::StreamJson),
            _ => {}
        }
        let anywhere = || MODELS.iter().find(|m| m.name == name && self.profile.is_none());
        match model::find(profile, name).or_else(anywhere) {
            Some(model) => Ok(Judge::Model(model)),
            None => Err(unknown(name, profile)),
        }
    }

    fn open(&self) -> Result<Box<dyn Read>, Failure> {
        match self.file.as_deref().filter(|path| path.as_os_str() != "-") {
            None => Ok(Box::new(io::stdin().lock())),
            Some(path) => {
                let file = File::open(path)
                    .map_err(|e| Failure::usage(format!("{}: {e}", path.display())))?;
                Ok(Box::new(BufReader::new(file)))
            }
        }
    }
}

fn unknown(name: &str, profile: Profile) -> Failure {
    let names = MODELS.iter().map(|m| m.name).chain([SSE, STREAM_JSON]);
    let message = match MODELS.iter().find(|m| m.name == name) {
        Some(other) => {
            format!("profile {profile} has no model {name:?}; profile {} has", other.profile)
        }
        None => match nearest(name, names) {
            Some(close) => format!("unknown model {name:?}, did you mean {close:?}?"),
            None => format!("unknown model {name:?}"),
        },
    };
    Failure::usage(message).with_help("`capstan validate --list` shows all models")
}

fn list(out: &mut impl Write) -> io::Result<()> {
    for profile in [Profile::V1, Profile::V2] {
        for model in MODELS.iter().filter(|m| m.profile == profile) {
            writeln!(out, "{profile}  {}", model.name)?;
        }
    }
    writeln!(out, "any {SSE}\nany {STREAM_JSON}")
}
