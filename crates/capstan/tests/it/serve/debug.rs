//! Debug mode of the running command: what switches it on.

use serde_json::Value;

use crate::serve::client::{ask, http};
use crate::serve::process::Server;

/// The answer of a server with these settings to a run that panics.
async fn answer(args: &[&str], env: &[(&str, &str)]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_as(folder.path(), args, env);
    let post = http().post(format!("{}/v1/assist", server.url)).json(&ask("/panic"));
    post.header("accept", "application/json").send().await.unwrap().json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debug_mode_is_what_the_flag_or_the_environment_of_the_command_says() {
    for (args, env, is_debug) in [
        (&["--debug"][..], &[][..], true),
        (&["--debug"], &[("CAPSTAN_ENV", "production")], true),
        (&[], &[("CAPSTAN_DEBUG", "true")], true),
        (&[], &[("CAPSTAN_ENV", "development")], true),
        (&[], &[("CAPSTAN_ENV", "Dev")], true),
        (&[], &[("CAPSTAN_ENV", "test")], true),
        (&[], &[("CAPSTAN_ENV", "local")], true),
        (&[], &[("CAPSTAN_ENV", "production")], false),
        (&[], &[("CAPSTAN_ENV", "staging")], false),
        (&[], &[], false),
    ] {
        let problem = answer(args, env).await;
        assert_eq!(problem["code"], "agent_execution_error");
        let tells = problem.to_string().contains("the demo agent was asked to panic");
        assert_eq!(tells, is_debug, "{args:?} {env:?}: {problem}");
    }
}
