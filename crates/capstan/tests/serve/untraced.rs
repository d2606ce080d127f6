//! A build without traces: it says so, once, to whoever expects them.

use crate::process::Server;

/// The log of a server that was started with these variables and ended.
fn log(env: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(folder.path(), env);
    server.signal("TERM");
    server.wait().1
}

#[test]
fn a_build_without_traces_names_the_variable_that_asks_for_them_and_the_remedy() {
    for variable in ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] {
        let log = log(&[(variable, "http://127.0.0.1:4318")]);
        assert_eq!(log.matches("exports no traces").count(), 1, "{log}");
        assert!(log.contains(variable) && log.contains("--features otel"), "{log}");
    }
    for env in [
        &[][..],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")],
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"), ("OTEL_SDK_DISABLED", "true")],
    ] {
        assert!(!log(env).contains("traces"));
    }
}
