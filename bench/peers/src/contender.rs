//! Who is measured: how each is started, and where it takes a run. The first words of a name say
//! whose it is.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use crate::result::here;
use crate::gateways::MESSAGES;
use crate::server::{self, Server};
use crate::{axum_server, provider};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// The provider itself, with nothing before it.
    Direct,
    CapstanDisk,
    CapstanMemory,
    Node,
    Axum,
    FastApi,
    Resumable,
    DurableNode,
    DurableRust,
    LiteLlm,
    Portkey,
}

impl Contender {
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "provider alone",
            Self::CapstanDisk => "capstan disk:",
            Self::CapstanMemory => "capstan memory:",
            Self::Node => "Node, by hand",
            Self::Axum => "axum Sse",
            Self::FastApi => "FastAPI",
            Self::Resumable => "resumable-stream, Redis",
            Self::DurableNode => "Durable Streams, Node",
            Self::DurableRust => "Durable Streams, Rust",
            Self::LiteLlm => "LiteLLM",
            Self::Portkey => "Portkey",
        }
    }

    /// What has to be installed for it, by the names that `install` gives.
    fn needs(self) -> &'static [&'static str] {
        match self {
            Self::Resumable => &["npm", "redis"],
            Self::DurableNode | Self::Portkey => &["npm"],
            Self::DurableRust => &["durable-streams-server"],
            Self::FastApi => &["fastapi"],
            Self::LiteLlm => &["litellm"],
            Self::Direct | Self::CapstanDisk | Self::CapstanMemory | Self::Node | Self::Axum => &[],
        }
    }

    /// Why it cannot run here: the error of its installation.
    pub fn skipped(self) -> Option<String> {
        let error =
            |name: &&str| match std::fs::read_to_string(installed(&format!("stamps/{name}"))) {
                Ok(_) => None,
                Err(_) => Some(
                    std::fs::read_to_string(installed(&format!("skipped/{name}"))).unwrap_or_else(
                        |_| format!("{name} is not installed; run bench/peers/install"),
                    ),
                ),
            };
        self.needs().iter().find_map(error)
    }

    /// Those that can run here.
    pub fn present(all: &[Self]) -> Vec<Self> {
        all.iter().copied().filter(|contender| contender.skipped().is_none()).collect()
    }

    /// Starts it; `provider` is who answers behind those that stand before one.
    pub fn start(self, provider: SocketAddr) -> io::Result<Server> {
        let mut server = Server::new()?;
        match self {
            Self::Direct => {
                server.address = provider;
                return Ok(server);
            }
            Self::CapstanDisk => {
                server.spawn(&mut capstan(&server, "disk:./journal", provider)?)?
            }
            Self::CapstanMemory => server.spawn(&mut capstan(&server, "memory:", provider)?)?,
            Self::Node => server.spawn(node("node.mjs").arg(server.port()))?,
            Self::Axum => server.spawn(
                Command::new(std::env::current_exe()?).args([axum_server::ROLE, &server.port()]),
            )?,
            Self::FastApi => server.spawn(&mut fastapi(&server))?,
            Self::Resumable => resumable(&mut server)?,
            Self::DurableNode => {
                server.spawn(node("durable.mjs").args([&server.port(), "streams"]))?
            }
            Self::DurableRust => server.spawn(&mut durable_rust(&server))?,
            Self::LiteLlm => server.spawn(&mut litellm(&server, provider)?)?,
            Self::Portkey => server.spawn(&mut portkey(&server))?,
        }
        server.ready().map_err(|error| io::Error::other(format!("{}: {error}", self.name())))
    }
}

/// The provider that stands behind gateways.
pub fn start_provider() -> io::Result<Server> {
    let mut server = Server::new()?;
    server.spawn(Command::new(std::env::current_exe()?).args([provider::ROLE, &server.port()]))?;
    server.ready()
}

/// Says who is missing, and why.
pub fn print_skipped() {
    use Contender::{DurableNode, DurableRust, FastApi, LiteLlm, Portkey, Resumable};
    for contender in [FastApi, Resumable, DurableNode, DurableRust, LiteLlm, Portkey] {
        if let Some(error) = contender.skipped() {
            println!(
                "skipped {}: its installation says\n  {}",
                contender.name(),
                error.trim().replace('\n', "\n  ")
            );
        }
    }
}

pub fn installed(name: &str) -> PathBuf {
    here().join(".installed").join(name)
}

/// The binary as `make release` makes it, or the one that `CAPSTAN` names.
fn capstan(server: &Server, journal: &str, provider: SocketAddr) -> io::Result<Command> {
    let agent = |name: &str, model: &str| {
        format!(
            "[[agents]]\nname = \"{name}\"\nkind = \"openai\"\nurl \
             = \"http://{provider}/v1\"\nmodel = \"{model}\"\n"
        )
    };
    // One address holds all viewers here.
    let config = format!(
        "listen = \"{}\"\njournal = \"{journal}\"\n[limits]\nconnections_per_address = \
         15000\nruns_per_tenant = 10000\n\
         [[agents]]\nname = \"demo\"\nkind = \"demo\"\n{}{}{}\
         [[agents]]\nname = \"{MESSAGES}\"\nkind = \"anthropic\"\nurl = \"http://{provider}\"\n\
         model = \"{}\"\n",
        server.address,
        agent("burst", provider::BURST),
        agent("paced", provider::PACED),
        agent("endless", provider::ENDLESS),
        provider::PACED,
    );
    std::fs::write(server.folder.path().join("capstan.toml"), config)?;
    let built = here().join("../../target/dist/capstan");
    let mut command = Command::new(std::env::var_os("CAPSTAN").map_or(built, PathBuf::from));
    command.arg("serve");
    Ok(command)
}

fn node(script: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(here().join("servers").join(script)).env("PEERS", installed(""));
    command
}

fn fastapi(server: &Server) -> Command {
    let mut command = Command::new(installed("fastapi/bin/uvicorn"));
    command.args([
        "fastapi_server:app",
        "--log-level",
        "warning",
        "--port",
        &server.port(),
        "--app-dir",
    ]);
    command.arg(here().join("servers"));
    command
}

/// Redis as Debian configures it, but for where it listens and that nothing is left behind.
fn resumable(server: &mut Server) -> io::Result<()> {
    let redis = server::free()?;
    let port = redis.port().to_string();
    server.spawn(Command::new("redis-server").args([
        "--bind",
        "127.0.0.1",
        "--port",
        &port,
        "--save",
        "",
    ]))?;
    server::wait_for(redis, || Ok(()))?;
    let port = server.port();
    server.spawn(node("resumable.mjs").arg(port).env("REDIS_URL", format!("redis://{redis}")))
}

/// Buffered writes to files: what survives a killed process, as capstan's `process`.
fn durable_rust(server: &Server) -> Command {
    let mut command = Command::new(installed("rust/bin/durable-streams-server"));
    command.env("DS_SERVER__BIND_ADDRESS", server.address.to_string());
    command
        .env("DS_STORAGE__MODE", "file-fast")
        .env("DS_STORAGE__DATA_DIR", server.folder.path().join("streams"));
    command.env("DS_LIMITS__MAX_MEMORY_BYTES", "1000000000").env("RUST_LOG", "warn");
    command
}

fn litellm(server: &Server, provider: SocketAddr) -> io::Result<Command> {
    let config = format!(
        "model_list:\n  - model_name: paced\n    litellm_params:\n      model: openai/{}\n      \
         api_base: http://{provider}/v1\n      api_key: none\n  \
         - model_name: {MESSAGES}\n    litellm_params:\n      model: anthropic/{}\n      \
         api_base: http://{provider}\n      api_key: none\n",
        provider::PACED,
        provider::PACED
    );
    std::fs::write(server.folder.path().join("config.yaml"), config)?;
    let mut command = Command::new(installed("litellm/bin/litellm"));
    command.args(["--config", "config.yaml", "--host", "127.0.0.1", "--port", &server.port()]);
    command.env("LITELLM_LOG", "ERROR");
    // Without a key for its own callers it does not start any more.
    command.env("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true");
    Ok(command)
}

fn portkey(server: &Server) -> Command {
    let mut command = Command::new("node");
    command.arg(installed("node/node_modules/@portkey-ai/gateway/build/start-server.js"));
    command.args([format!("--port={}", server.port()), "--headless".to_owned()]);
    command.env("TRUSTED_CUSTOM_HOSTS", "127.0.0.1,localhost");
    command
}
