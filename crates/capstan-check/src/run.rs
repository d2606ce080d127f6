//! Runs the checks: finds the faces, chooses the checks, and runs one after another.

use std::collections::{BTreeMap, BTreeSet};

use capstan_protocol::Timestamp;
use http::Method;
use thiserror::Error;
use uuid::Uuid;

use crate::check::{Check, Face, Use};
use crate::lab::Lab;
use crate::outcome::NotPassed;
use crate::report::{Environment, Judged, Report, Summary, Verdict};
use crate::table::CHECKS;
use crate::target::{Faces, Target};
use crate::wire::{Ask, Exchange};
use crate::{a2a, durable, messages, openai};

/// Why nothing could be checked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Unreachable {
    message: String,
    /// A remedy.
    pub help: Option<String>,
}

/// The progress of a run of checks, for the caller.
#[derive(Debug)]
pub enum Progress<'a> {
    /// Before the first check: the environment, the number of checks, and the number of runs they
    /// start.
    Begins(&'a Environment, usize, usize),
    /// A check has a verdict.
    Judged(&'a Judged),
}

/// Runs all checks, or the named ones with their dependencies. Dropping the future does not stop
/// runs that it started.
pub async fn run(
    target: Target,
    mut watch: impl FnMut(Progress<'_>),
) -> Result<Report, Unreachable> {
    let chosen = choose(&target.only)?;
    let (lab, environment) = prepare(target).await?;
    let has = |face| match face {
        Face::Cap => environment.assist.is_some(),
        Face::Agui => environment.agui.is_some(),
        Face::OpenAi | Face::Messages | Face::AiSdk | Face::A2a | Face::Durable => {
            environment.others.contains(&face.to_string())
        }
    };
    // A check that the user named gets a reason if it is impossible. Otherwise the checks of a
    // missing face are left out.
    let chosen = if lab.target.only.is_empty() { within(chosen, has) } else { chosen };
    let runs = count_runs(&lab.target, chosen.iter().copied().filter(|check| has(check.face)));
    watch(Progress::Begins(&environment, chosen.len(), runs));
    let mut checks: Vec<Judged> = Vec::new();
    for check in chosen {
        let verdict = match obstacle(check, has(check.face), &lab, &checks) {
            Some(reason) => Verdict::Skipped { reason },
            None => judge(check, &lab).await,
        };
        let judged = Judged::new(check, verdict);
        watch(Progress::Judged(&judged));
        checks.push(judged);
    }
    Ok(Report { environment, summary: Summary::of(&checks, runs), checks })
}

/// The named checks and their dependencies; all if none is named.
fn choose(only: &[String]) -> Result<Vec<&'static Check>, Unreachable> {
    let by_id: BTreeMap<&str, &Check> = CHECKS.iter().map(|check| (check.id, check)).collect();
    let mut wanted = BTreeSet::new();
    let mut open: Vec<&str> = only.iter().map(String::as_str).collect();
    while let Some(id) = open.pop() {
        let check = by_id.get(id).ok_or_else(|| unknown(id))?;
        if wanted.insert(check.id) {
            open.extend(check.after);
        }
    }
    Ok(CHECKS.iter().filter(|check| only.is_empty() || wanted.contains(check.id)).collect())
}

/// Leaves out the checks of missing faces, and those that depend on them.
fn within(chosen: Vec<&'static Check>, has: impl Fn(Face) -> bool) -> Vec<&'static Check> {
    let mut chosen_checks: Vec<&Check> = Vec::new();
    for check in chosen {
        if has(check.face) && check.after.iter().all(|id| chosen_checks.iter().any(|k| k.id == *id))
        {
            chosen_checks.push(check);
        }
    }
    chosen_checks
}

fn unknown(id: &str) -> Unreachable {
    let near = capstan_protocol::nearest(id, CHECKS.iter().map(|check| check.id));
    let hint = near.map_or_else(String::new, |near| format!(", did you mean {near}?"));
    Unreachable {
        message: format!("no check is called {id:?}{hint}"),
        help: Some("`--list` shows them all".into()),
    }
}

fn count_runs<'a>(target: &Target, checks: impl Iterator<Item = &'a Check>) -> usize {
    let possible =
        checks.filter(|check| check.uses.iter().all(|used| used.missing(target).is_none()));
    let mut runs: Vec<Use> = Vec::new();
    for used in possible.flat_map(|check| check.uses) {
        if used.is_run() && !runs.contains(used) {
            runs.push(*used);
        }
    }
    runs.len()
}

/// Why a check is impossible.
fn obstacle(check: &Check, has_face: bool, lab: &Lab, before: &[Judged]) -> Option<String> {
    if !has_face {
        return Some(format!("no {} face is checked", check.face));
    }
    if let Some(reason) = check.uses.iter().find_map(|used| used.missing(&lab.target)) {
        return Some(reason.to_owned());
    }
    let has_passed =
        |id: &&&str| before.iter().any(|b| b.id == **id && b.verdict == Verdict::Passed);
    check.after.iter().find(|id| !has_passed(id)).map(|id| format!("needs {id}"))
}

async fn judge(check: &Check, lab: &Lab) -> Verdict {
    match (check.judge)(lab).await {
        Ok(()) => Verdict::Passed,
        Err(NotPassed::Skip(reason)) => Verdict::Skipped { reason },
        Err(NotPassed::Broken(evidence)) => {
            Verdict::Broken { evidence: evidence.presentable(&lab.secrets()) }
        }
    }
}

/// Finds the faces and the demo agent, without starting a run.
async fn prepare(target: Target) -> Result<(Lab, Environment), Unreachable> {
    let wrong = |message: String| Unreachable { message, help: None };
    let mut lab = Lab::new(target).map_err(|error| wrong(error.to_string()))?;
    let assist = match lab.target.faces {
        Faces::Agui => None,
        Faces::Auto | Faces::Cap => find(&lab, assist_paths(&lab.target)).await?,
    };
    let agui = match lab.target.faces {
        Faces::Cap => None,
        Faces::Auto | Faces::Agui => find(&lab, agui_paths(&lab.target)).await?,
    };
    let others = if lab.target.others && lab.target.faces == Faces::Auto {
        others(&lab).await
    } else {
        Vec::new()
    };
    if assist.is_none() && agui.is_none() && others.is_empty() {
        return Err(no_face(&lab.target));
    }
    let is_demo = is_demo(&lab).await;
    if is_demo {
        lab.target.queries = std::mem::take(&mut lab.target.queries).or_demo();
    }
    lab.assist = assist.clone().unwrap_or_default();
    lab.agui = agui.clone().unwrap_or_default();
    let environment = Environment {
        url: shown_url(&lab.target),
        assist,
        agui,
        others,
        is_demo,
        has_key: lab.target.has_key(),
        has_other_key: lab.target.has_other_key(),
        started_at: Timestamp::now(),
        version: env!("CARGO_PKG_VERSION"),
    };
    Ok((lab, environment))
}

/// The URL without user and password.
fn shown_url(target: &Target) -> String {
    let mut url = target.url.clone();
    // Fails only for URLs that have no host, which cannot be reached either.
    let _ = url.set_password(None).and_then(|()| url.set_username(""));
    url.to_string()
}

fn assist_paths(target: &Target) -> Vec<String> {
    match (&target.assist_path, &target.agent) {
        (Some(path), _) => vec![path.clone()],
        (None, Some(agent)) => vec![of_agent(agent, "assist")],
        (None, None) => vec!["/v1/assist".into(), "/assist".into()],
    }
}

fn of_agent(agent: &str, face: &str) -> String {
    format!("{}/{face}", crate::lab::of_agent(agent))
}

fn agui_paths(target: &Target) -> Vec<String> {
    match (&target.agui_path, &target.agent) {
        (Some(path), _) => vec![path.clone()],
        (None, Some(agent)) => vec![of_agent(agent, "ag-ui")],
        // A bare AG-UI server is its URL.
        (None, None) if target.faces == Faces::Agui => vec!["/v1/ag-ui".into(), String::new()],
        (None, None) => vec!["/v1/ag-ui".into()],
    }
}

/// The first path that takes a POST. An empty object is no request in any face, so that nothing
/// starts.
async fn find(lab: &Lab, paths: Vec<String>) -> Result<Option<String>, Unreachable> {
    for path in paths {
        match lab.open(&Ask::post(&*path, "{}")).await {
            Ok(live) if matches!(live.seen.status, 404 | 405) => {}
            Ok(_) => return Ok(Some(path)),
            Err(NotPassed::Broken(evidence)) => {
                let evidence = evidence.presentable(&lab.secrets());
                let message = format!("{}: {}", shown_url(&lab.target), evidence.came);
                return Err(Unreachable {
                    message,
                    help: Some("is the server running, and is this its URL?".into()),
                });
            }
            Err(NotPassed::Skip(_)) => {}
        }
    }
    Ok(None)
}

/// The faces besides CAP and AG-UI, found by requests that start no run.
async fn others(lab: &Lab) -> Vec<String> {
    let refused = async |path: String| {
        let answer = lab.send(&Ask::post(path, "{}")).await;
        answer.is_ok_and(|answer| answer.status == 400)
    };
    let speaks_messages = async || {
        let answer = lab.send(&Ask::post(messages::MESSAGES, "{}")).await;
        let is_theirs = |answer: Exchange| {
            answer.status == 400 && answer.json().get("type").is_some_and(|kind| kind == "error")
        };
        answer.is_ok_and(is_theirs)
    };
    let has_card = lab.send(&Ask::get(a2a::card_path(lab))).await;
    let is_read_only = lab.send(&Ask::new(Method::PUT, durable::path(Uuid::nil()))).await;
    let found = [
        (Face::OpenAi, refused(openai::RESPONSES.into()).await),
        (Face::Messages, speaks_messages().await),
        (Face::AiSdk, refused(lab.below("ai-sdk/chat")).await),
        (Face::A2a, has_card.is_ok_and(|card| card.status == 200 && card.json().is_object())),
        (Face::Durable, is_read_only.is_ok_and(|answer| answer.status == 405)),
    ];
    found.into_iter().filter(|(_, is_there)| *is_there).map(|(face, _)| face.to_string()).collect()
}

fn no_face(target: &Target) -> Unreachable {
    let cap = assist_paths(target).into_iter().filter(|_| target.faces != Faces::Agui);
    let agui = agui_paths(target).into_iter().filter(|_| target.faces != Faces::Cap);
    let tried: Vec<String> =
        cap.chain(agui).map(|path| if path.is_empty() { "/".into() } else { path }).collect();
    Unreachable {
        message: format!("{} takes no POST at {}", shown_url(target), tried.join(", ")),
        help: Some(
            "say where: --assist-path, --agui-path, --agent; a bare AG-UI server needs --face \
             ag-ui"
                .into(),
        ),
    }
}

/// Whether the agent is the gateway's demo.
async fn is_demo(lab: &Lab) -> bool {
    const DEMO: &str = "demo";
    let Ok(exchange) = lab.send(&Ask::new(Method::GET, "/v1/agents")).await else { return false };
    let list = exchange.json();
    let names = list.get("agents").and_then(|agents| agents.as_array()).into_iter().flatten();
    let mut names = names.filter_map(|agent| agent.get("name")?.as_str());
    let has_own_path = lab.target.assist_path.is_some() || lab.target.agui_path.is_some();
    match &lab.target.agent {
        Some(agent) => agent == DEMO && names.any(|name| name == DEMO),
        // The default agent is listed first.
        None => !has_own_path && names.next() == Some(DEMO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_runs_with_its_dependencies() {
        let chosen = choose(&["cap.resume".into()]).unwrap();
        let ids: Vec<&str> = chosen.iter().map(|check| check.id).collect();
        assert!(
            ids.contains(&"cap.answer") && ids.contains(&"cap.seq") && ids.contains(&"cap.resume"),
            "{ids:?}"
        );
        assert!(ids.len() < 15, "{ids:?}");
        assert_eq!(choose(&[]).unwrap().len(), CHECKS.len());
    }

    #[test]
    fn a_mistyped_check_is_named_with_the_nearest_one() {
        let wrong = choose(&["cap.resum".into()]).unwrap_err();
        assert_eq!(wrong.to_string(), "no check is called \"cap.resum\", did you mean cap.resume?");
    }

    #[test]
    fn any_agent_name_is_one_segment_of_a_path() {
        assert_eq!(of_agent("my agent/2", "assist"), "/v1/agents/my%20agent%2F2/assist");
    }

    #[test]
    fn shared_runs_are_counted_once() {
        let mut target = Target::new("http://localhost".parse().unwrap());
        let cap = || CHECKS.iter().filter(|check| check.face == Face::Cap);
        let without = count_runs(&target, cap());
        target.queries.fault = Some("fail".into());
        assert_eq!((without, count_runs(&target, cap())), (3, 4));
    }
}
