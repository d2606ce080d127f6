//! The catalogue and its dialects: story 22-B2's criteria that concern types, named after what they
//! promise.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;

use capstan_protocol::agui::{AguiCode, AguiEvent, RunError, RunErrorForm};
use capstan_protocol::fault::{self, Entry, UpstreamStatus};
use capstan_protocol::{
    AguiErrorCode, CATALOGUE, DecodeError, ErrorDomain, ErrorSeverity, Exposure, Fault, FaultKind,
    Problem, StreamError, UserError,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// What the story calls `create_error_event`.
fn run_error(error: impl Error + 'static, exposure: Exposure) -> RunError {
    Fault::from_error(error).to_run_error(exposure)
}

fn assert_maps(
    error: impl Error + 'static,
    code: AguiErrorCode,
    status: u16,
    retry_after: Option<u64>,
) {
    let text = error.to_string();
    let event = run_error(error, Exposure::Production);
    assert_eq!(
        (event.code, event.http_status, event.retry_after),
        (AguiCode::Known(code), status, retry_after),
        "{text}"
    );
}

#[test]
fn there_are_exactly_ten_agui_codes() {
    let codes: Vec<&str> = AguiErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(
        codes,
        [
            "AGENT_EXECUTION_ERROR",
            "TENANT_REQUIRED",
            "TENANT_UNAUTHORIZED",
            "SESSION_NOT_FOUND",
            "RATE_LIMITED",
            "TIMEOUT",
            "INVALID_REQUEST",
            "CAPABILITY_NOT_FOUND",
            "UPSTREAM_ERROR",
            "SERVICE_UNAVAILABLE",
        ]
    );
    for code in AguiErrorCode::ALL {
        assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        assert_eq!(serde_json::from_value::<AguiErrorCode>(json!(code.as_str())).unwrap(), code);
    }
}

#[test]
fn each_agui_code_has_its_fixed_status_and_slug() {
    for (code, status, slug) in [
        ("AGENT_EXECUTION_ERROR", 500, "agent-execution"),
        ("TENANT_REQUIRED", 401, "tenant-required"),
        ("TENANT_UNAUTHORIZED", 403, "tenant-unauthorized"),
        ("SESSION_NOT_FOUND", 404, "session-not-found"),
        ("RATE_LIMITED", 429, "rate-limited"),
        ("TIMEOUT", 504, "timeout"),
        ("INVALID_REQUEST", 400, "invalid-request"),
        ("CAPABILITY_NOT_FOUND", 404, "capability-not-found"),
        ("UPSTREAM_ERROR", 502, "upstream-error"),
        ("SERVICE_UNAVAILABLE", 503, "service-unavailable"),
    ] {
        let code: AguiErrorCode = code.parse().unwrap();
        assert_eq!(code.http_status(), status);
        assert_eq!(code.head().entry().slug, slug);
        assert_eq!(code.head().entry().agui, code, "the head of a code maps onto it");
    }
}

#[test]
fn only_three_codes_mean_try_again_by_themselves() {
    let retryable: Vec<_> = AguiErrorCode::ALL.into_iter().filter(|c| c.is_retryable()).collect();
    assert_eq!(
        retryable,
        [AguiErrorCode::RateLimited, AguiErrorCode::Timeout, AguiErrorCode::ServiceUnavailable]
    );
}

#[test]
fn a_run_error_has_code_message_status_details_and_retry_after() {
    let fault = Fault::new(FaultKind::RateLimitExceeded).with_detail("limit", 5);
    let event = fault.to_run_error(Exposure::Production);
    assert_eq!(event.code, AguiCode::Known(AguiErrorCode::RateLimited));
    assert_eq!(event.message, "Request rate limit exceeded. Please wait before retrying.");
    assert_eq!(event.http_status, 429);
    assert_eq!(event.details["limit"], 5);
    assert_eq!(event.retry_after, Some(60));
}

#[test]
fn a_rate_limit_maps_to_rate_limited_and_sixty_seconds() {
    assert_maps(fault::RateLimitExceeded::default(), AguiErrorCode::RateLimited, 429, Some(60));
    let known = fault::RateLimitExceeded { retry_after: Some(1.2) };
    assert_maps(known, AguiErrorCode::RateLimited, 429, Some(2));
}

#[test]
fn session_and_message_limits_map_to_rate_limited_without_a_wait() {
    assert_maps(fault::SessionLimitExceeded, AguiErrorCode::RateLimited, 429, None);
    assert_maps(fault::MessageLimitExceeded, AguiErrorCode::RateLimited, 429, None);
    assert_eq!(
        Fault::from_error(fault::MessageLimitExceeded).severity(),
        ErrorSeverity::Fatal,
        "the session is full"
    );
}

#[test]
fn time_outs_map_to_timeout() {
    assert_maps(
        std::io::Error::from(std::io::ErrorKind::TimedOut),
        AguiErrorCode::Timeout,
        504,
        None,
    );
    assert_maps(fault::UpstreamTimeout, AguiErrorCode::Timeout, 504, None);
}

#[test]
fn an_agent_or_capability_that_is_not_there_maps_to_capability_not_found() {
    assert_maps(fault::AgentNotFound, AguiErrorCode::CapabilityNotFound, 404, None);
    assert_maps(fault::CapabilityNotFound, AguiErrorCode::CapabilityNotFound, 404, None);
}

#[test]
fn tenancy_maps_to_tenant_required_and_tenant_unauthorized() {
    assert_maps(fault::TenantRequired, AguiErrorCode::TenantRequired, 401, None);
    assert_maps(fault::PermissionDenied, AguiErrorCode::TenantUnauthorized, 403, None);
}

#[test]
fn a_failed_validation_maps_to_invalid_request() {
    assert_maps(
        fault::Validation { message: "too short".into() },
        AguiErrorCode::InvalidRequest,
        400,
        None,
    );
    let decode = capstan_protocol::decode::from_str::<StreamError>("{}").unwrap_err();
    assert_eq!(Fault::from_error(decode).message(), "code: required member is absent");
    let serde = serde_json::from_str::<u8>("\"x\"").unwrap_err();
    assert_maps(serde, AguiErrorCode::InvalidRequest, 400, None);
}

#[test]
fn a_document_that_serde_refuses_is_not_quoted_in_production() {
    let fault = Fault::from_error(serde_json::from_str::<u8>("\"hunter2\"").unwrap_err());
    assert!(!fault.to_problem(Exposure::Production).detail.unwrap().contains("hunter2"));
    assert!(
        fault.to_stream_error(Exposure::Debug).details.unwrap()["source_chain"][0]
            .as_str()
            .unwrap()
            .contains("hunter2")
    );
}

#[test]
fn a_session_that_is_not_there_maps_to_session_not_found() {
    assert_maps(fault::SessionNotFound, AguiErrorCode::SessionNotFound, 404, None);
}

#[test]
fn a_failed_lookup_inside_an_agent_is_not_session_not_found() {
    let missing_file = std::io::Error::from(std::io::ErrorKind::NotFound);
    assert_maps(missing_file, AguiErrorCode::AgentExecutionError, 500, None);
}

#[test]
fn an_unavailable_service_maps_to_service_unavailable() {
    assert_maps(fault::ServiceUnavailable, AguiErrorCode::ServiceUnavailable, 503, None);
}

#[test]
fn an_upstream_status_maps_to_upstream_error_and_keeps_its_wait() {
    let status = |status, retry_after| UpstreamStatus { status, retry_after };
    assert_maps(status(503, None), AguiErrorCode::UpstreamError, 502, None);
    assert_maps(status(429, Some(7.0)), AguiErrorCode::UpstreamError, 502, Some(7));
    for (code, severity) in [
        (408, "TRANSIENT"),
        (409, "TRANSIENT"),
        (425, "TRANSIENT"),
        (429, "TRANSIENT"),
        (500, "TRANSIENT"),
        (529, "TRANSIENT"),
        (400, "FATAL"),
        (404, "FATAL"),
        (422, "FATAL"),
    ] {
        let fault = Fault::from_error(status(code, None));
        assert_eq!(fault.severity().as_str(), severity, "{code}");
        assert_eq!(fault.is_retryable(), severity == "TRANSIENT", "{code}");
    }
}

#[test]
fn broken_connections_map_to_upstream_error() {
    for kind in [
        std::io::ErrorKind::ConnectionRefused,
        std::io::ErrorKind::ConnectionReset,
        std::io::ErrorKind::BrokenPipe,
    ] {
        assert_maps(std::io::Error::from(kind), AguiErrorCode::UpstreamError, 502, None);
    }
}

#[derive(Debug)]
struct DatabaseExploded {
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl fmt::Display for DatabaseExploded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connection to 10.0.0.7:5432 as root failed")
    }
}

impl Error for DatabaseExploded {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}

#[test]
fn an_unknown_error_says_nothing_about_the_inside_in_production() {
    let fault = Fault::from_error(DatabaseExploded { source: None });
    let event = fault.to_run_error(Exposure::Production);
    assert_eq!(
        (event.code, event.http_status),
        (AguiCode::Known(AguiErrorCode::AgentExecutionError), 500)
    );
    assert_eq!(event.message, "An error occurred processing your request.");
    assert!(event.details.is_empty());
    for text in [
        serde_json::to_string(&fault.to_stream_error(Exposure::Production)).unwrap(),
        serde_json::to_string(&fault.to_problem(Exposure::Production)).unwrap(),
        serde_json::to_string(&fault.to_run_error(Exposure::Production)).unwrap(),
        serde_json::to_string(&fault.to_user_error()).unwrap(),
        fault.to_string(),
    ] {
        assert!(!text.contains("10.0.0.7") && !text.contains("DatabaseExploded"), "{text}");
    }
}

#[test]
fn an_unknown_error_names_its_type_in_debug_mode() {
    let fault = Fault::from_error(DatabaseExploded { source: None });
    let event = fault.to_run_error(Exposure::Debug);
    assert_eq!(
        (event.code, event.http_status),
        (AguiCode::Known(AguiErrorCode::AgentExecutionError), 500)
    );
    assert_eq!(event.details["error_type"], "DatabaseExploded");
    assert_eq!(event.details["source_chain"][0], "connection to 10.0.0.7:5432 as root failed");
    let erased: Box<dyn Error> = Box::new(DatabaseExploded { source: None });
    let event = Fault::from_dyn(erased.as_ref()).to_run_error(Exposure::Debug);
    assert_eq!(event.details["error_type"], "DatabaseExploded");
}

#[test]
fn the_chain_of_sources_is_searched() {
    let wrapped = DatabaseExploded { source: Some(Box::new(fault::RateLimitExceeded::default())) };
    assert_maps(wrapped, AguiErrorCode::RateLimited, 429, Some(60));
    let wrapped =
        DatabaseExploded { source: Some(Box::new(Fault::new(FaultKind::ContentRefused))) };
    assert_eq!(Fault::from_error(wrapped).kind(), FaultKind::ContentRefused);
}

#[test]
fn a_panic_is_an_execution_error_whose_text_stays_inside() {
    let payload: Box<dyn std::any::Any + Send> = Box::new("index out of bounds: secret");
    let fault = Fault::from_panic(payload.as_ref());
    assert_eq!(fault.kind(), FaultKind::AgentExecutionError);
    assert!(!fault.to_stream_error(Exposure::Production).to_string().contains("secret"));
    assert_eq!(fault.to_run_error(Exposure::Debug).details["error_type"], "panic");
}

#[test]
fn debug_mode_is_on_in_development_only() {
    for name in ["development", "dev", "test", "local", "DEV"] {
        assert_eq!(Exposure::from_environment(Some(name)), Exposure::Debug);
    }
    for name in [None, Some(""), Some("production"), Some("prod"), Some("staging")] {
        assert_eq!(Exposure::from_environment(name), Exposure::Production);
    }
}

#[test]
fn a_run_error_on_the_wire_has_the_storys_members() {
    let fault = Fault::new(FaultKind::RateLimitExceeded);
    let event = fault.to_run_error(Exposure::Production).to_event(RunErrorForm::Story, Some(1700));
    let wire = serde_json::to_value(&event).unwrap();
    assert_eq!(wire["type"], "RUN_ERROR");
    assert_eq!(wire["code"], "RATE_LIMITED");
    assert_eq!(wire["http_status"], 429);
    assert_eq!(wire["details"], json!({}));
    assert_eq!(wire["retry_after"], 60);
    assert_eq!(wire["timestamp"], 1700);
    let ours = &wire["metadata"]["capstan"];
    assert_eq!(ours["kind"], "rate_limit_exceeded");
    assert_eq!(
        (&ours["severity"], &ours["domain"], &ours["retryable"]),
        (&json!("TRANSIENT"), &json!("client"), &json!(true))
    );
    assert_eq!(ours["type"], "/errors/rate-limited");
}

#[test]
fn retry_after_is_absent_when_there_is_none() {
    let event = Fault::new(FaultKind::Timeout)
        .to_run_error(Exposure::Production)
        .to_event(RunErrorForm::Story, None);
    let wire = serde_json::to_value(&event).unwrap();
    assert!(wire.get("retry_after").is_none());
    assert!(wire["metadata"]["capstan"].get("retry_after").is_none());
    assert_eq!(wire["details"], json!({}), "details are always there");
}

#[test]
fn a_peer_that_sends_a_protocol_version_gets_metadata_only() {
    let fault = Fault::new(FaultKind::RateLimitExceeded);
    let event = fault.to_run_error(Exposure::Production).to_event(RunErrorForm::MetadataOnly, None);
    let wire = serde_json::to_value(&event).unwrap();
    let members: BTreeSet<&str> = wire.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(members, BTreeSet::from(["type", "message", "code", "metadata"]));
    assert_eq!(
        RunError::from_event(&event).unwrap(),
        fault.to_run_error(Exposure::Production),
        "nothing is lost"
    );
}

/// A fault of a kind with everything set that travels.
fn sample(entry: &Entry) -> Fault {
    Fault::new(entry.kind).with_message("as it happened").with_detail("attempt", 2)
}

#[test]
fn every_row_of_the_catalogue_survives_each_dialect() {
    for entry in CATALOGUE {
        let fault = sample(entry);
        assert_eq!(
            Fault::from(fault.to_stream_error(Exposure::Production)),
            fault,
            "{}: StreamError",
            entry.code
        );
        assert_eq!(
            Fault::from(fault.to_run_error(Exposure::Production)),
            fault,
            "{}: RunError",
            entry.code
        );
        assert_eq!(
            Fault::from(fault.to_problem(Exposure::Production)),
            fault,
            "{}: Problem",
            entry.code
        );
        let user = Fault::from(fault.to_user_error());
        assert_eq!(user.message(), fault.message(), "{}: UserError", entry.code);
        assert_eq!(user.is_retryable(), fault.is_retryable(), "{}: UserError", entry.code);
        let assistant = Fault::from_assistant_error(&fault.to_assistant_error(), None);
        assert_eq!(
            assistant.to_assistant_error(),
            fault.to_assistant_error(),
            "{}: assistant",
            entry.code
        );
    }
}

#[test]
fn every_row_of_the_catalogue_serialises_in_each_dialect() {
    for entry in CATALOGUE {
        let fault = sample(entry);
        let stream = serde_json::to_value(fault.to_stream_error(Exposure::Production)).unwrap();
        assert_eq!(
            (&stream["code"], &stream["severity"]),
            (&json!(entry.code), &json!(entry.severity.as_str()))
        );
        assert_eq!(
            stream["details"].get("retry_after"),
            entry.retry_after.map(Value::from).as_ref()
        );
        assert!(
            capstan_protocol::decode::from_value::<StreamError>(&stream).is_ok(),
            "{}",
            entry.code
        );
        let event = serde_json::to_value(
            fault.to_run_error(Exposure::Production).to_event(RunErrorForm::Story, None),
        )
        .unwrap();
        assert_eq!(
            (&event["code"], &event["http_status"]),
            (&json!(entry.agui.as_str()), &json!(entry.agui.http_status()))
        );
        assert!(serde_json::from_value::<AguiEvent>(event).is_ok(), "{}", entry.code);
        let problem = serde_json::to_value(fault.to_problem(Exposure::Production)).unwrap();
        assert_eq!(
            (&problem["status"], &problem["type"]),
            (&json!(entry.status), &json!(entry.problem_type()))
        );
        assert_eq!(
            (&problem["code"], &problem["retryable"]),
            (&json!(entry.code), &json!(entry.retryable))
        );
        assert!(serde_json::from_value::<Problem>(problem).is_ok(), "{}", entry.code);
        let user: UserError =
            serde_json::from_value(serde_json::to_value(fault.to_user_error()).unwrap()).unwrap();
        assert_eq!((user.code, user.domain), (Some(i64::from(entry.status)), entry.domain));
    }
}

#[test]
fn every_row_of_the_catalogue_is_well_formed() {
    let (mut codes, mut slugs) = (BTreeSet::new(), BTreeSet::new());
    for (kind, entry) in FaultKind::ALL.iter().zip(CATALOGUE) {
        assert_eq!(kind.entry(), entry, "a kind's row is its own");
        assert!(codes.insert(entry.code) && slugs.insert(entry.slug), "{} is unique", entry.code);
        assert!(
            entry.code.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
            "{} is snake_case",
            entry.code
        );
        assert!(
            entry.slug.chars().all(|c| c.is_ascii_lowercase() || c == '-'),
            "{} is kebab-case",
            entry.slug
        );
        assert!((400..600).contains(&entry.status));
        assert_ne!(entry.severity, ErrorSeverity::Warning, "a warning is a case, not a kind");
        assert!(
            entry.retry_after.is_none() || entry.retryable,
            "{}: a wait promises a retry",
            entry.code
        );
        assert!(
            entry.severity == ErrorSeverity::Fatal || entry.retryable,
            "{}: TRANSIENT can be retried",
            entry.code
        );
        for text in [entry.title, entry.message, entry.meaning, entry.remedy] {
            assert!(!text.is_empty(), "{} has all its texts", entry.code);
        }
        for spelling in [entry.code, entry.slug, &entry.code.to_uppercase(), &entry.problem_type()]
        {
            let found = FaultKind::parse(spelling).unwrap();
            assert_eq!(found.entry().agui, entry.agui, "{spelling}");
        }
        assert_eq!(FaultKind::parse(entry.code), Some(*kind));
    }
    assert_eq!(FaultKind::ALL.len(), CATALOGUE.len());
    for code in AguiErrorCode::ALL {
        assert!(CATALOGUE.iter().any(|entry| entry.agui == code), "{code} has a row");
    }
}

#[test]
fn a_foreign_stream_error_keeps_code_message_and_severity() {
    let foreign = StreamError::new("gpu_on_fire", "Ouch", ErrorSeverity::Transient)
        .with_detail("retry_after", 2.5);
    let fault = Fault::from(foreign.clone());
    assert_eq!(
        (fault.code(), fault.message(), fault.severity()),
        ("gpu_on_fire", "Ouch", ErrorSeverity::Transient)
    );
    assert_eq!(fault.retry_after(), Some(3), "rounded up to whole seconds");
    let back = fault.to_stream_error(Exposure::Production);
    assert_eq!(
        (back.code, back.message, back.severity),
        (foreign.code, foreign.message, foreign.severity)
    );
    let run_error = fault.to_run_error(Exposure::Production);
    assert_eq!(run_error.code, AguiCode::Known(AguiErrorCode::AgentExecutionError));
    assert_eq!(Fault::from(run_error).code(), "gpu_on_fire");
    assert_eq!(Fault::from(fault.to_problem(Exposure::Production)).code(), "gpu_on_fire");
}

#[test]
fn a_foreign_run_error_with_nothing_but_a_message_is_read() {
    let event: AguiEvent =
        serde_json::from_value(json!({ "type": "RUN_ERROR", "message": "boom" })).unwrap();
    let error = RunError::from_event(&event).unwrap();
    assert_eq!(error.http_status, 500);
    let fault = Fault::from(error);
    assert_eq!((fault.kind(), fault.message()), (FaultKind::AgentExecutionError, "boom"));
    let event: AguiEvent =
        serde_json::from_value(json!({ "type": "RUN_ERROR", "message": "boom", "code": "E42" }))
            .unwrap();
    assert_eq!(Fault::from(RunError::from_event(&event).unwrap()).code(), "E42");
    let event: AguiEvent =
        serde_json::from_value(json!({ "type": "RUN_ERROR", "message": "m", "code": "TIMEOUT" }))
            .unwrap();
    assert!(Fault::from(RunError::from_event(&event).unwrap()).is_retryable());
}

#[test]
fn a_foreign_problem_is_read_with_careful_defaults() {
    let problem: Problem =
        serde_json::from_value(json!({ "title": "Nope", "status": 418 })).unwrap();
    let fault = Fault::from(problem);
    assert_eq!(
        (fault.message(), fault.severity(), fault.is_retryable()),
        ("Nope", ErrorSeverity::Fatal, false)
    );
}

#[test]
fn a_user_error_defaults_to_system_and_not_retryable() {
    let user: UserError = serde_json::from_value(json!({ "message": "m" })).unwrap();
    assert_eq!((user.code, user.domain, user.retryable), (None, ErrorDomain::System, false));
    assert_eq!(Fault::from(user).severity(), ErrorSeverity::Warning, "the run goes on");
}

#[test]
fn waits_that_make_no_sense_are_no_waits() {
    for wrong in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
        assert_eq!(Fault::new(FaultKind::Timeout).with_retry_after(wrong).retry_after(), None);
    }
}

#[test]
fn an_error_of_ours_is_an_error_like_any_other() {
    let boxed: Box<dyn Error> = Box::new(Fault::new(FaultKind::StreamLost));
    assert_eq!(Fault::from_dyn(boxed.as_ref()).kind(), FaultKind::StreamLost);
    let boxed: Box<dyn Error> = Box::new(DecodeError::value("p", "wrong"));
    assert_eq!(Fault::from_dyn(boxed.as_ref()).message(), "p: wrong");
}

/// Code, AG-UI code, HTTP status, severity, domain, retryable, wait.
type Columns = (&'static str, &'static str, u16, &'static str, &'static str, bool, Option<u64>);

/// The contract's table, typed out: a changed column of the catalogue must be a decision, not an
/// accident.
#[rustfmt::skip]
const TABLE: &[Columns] = &[
    ("rate_limit_exceeded", "RATE_LIMITED", 429, "TRANSIENT", "client", true, Some(60)),
    ("session_limit_exceeded", "RATE_LIMITED", 429, "TRANSIENT", "client", true, None),
    ("message_limit_exceeded", "RATE_LIMITED", 429, "FATAL", "client", false, None),
    ("storage_limit_exceeded", "RATE_LIMITED", 429, "TRANSIENT", "client", true, None),
    ("timeout", "TIMEOUT", 504, "TRANSIENT", "system", true, None),
    ("upstream_timeout", "TIMEOUT", 504, "TRANSIENT", "llm", true, None),
    ("tenant_required", "TENANT_REQUIRED", 401, "FATAL", "security", false, None),
    ("tenant_unauthorized", "TENANT_UNAUTHORIZED", 403, "FATAL", "security", false, None),
    ("invalid_request", "INVALID_REQUEST", 400, "FATAL", "client", false, None),
    ("request_conflict", "INVALID_REQUEST", 409, "FATAL", "client", false, None),
    ("payload_too_large", "INVALID_REQUEST", 413, "FATAL", "client", false, None),
    ("answer_too_large", "INVALID_REQUEST", 406, "FATAL", "client", false, None),
    ("route_not_found", "INVALID_REQUEST", 404, "FATAL", "client", false, None),
    ("method_not_allowed", "INVALID_REQUEST", 405, "FATAL", "client", false, None),
    ("unsupported_media_type", "INVALID_REQUEST", 415, "FATAL", "client", false, None),
    ("interrupt_not_open", "INVALID_REQUEST", 409, "FATAL", "client", false, None),
    ("agent_not_found", "CAPABILITY_NOT_FOUND", 404, "FATAL", "client", false, None),
    ("capability_not_found", "CAPABILITY_NOT_FOUND", 404, "FATAL", "client", false, None),
    ("session_not_found", "SESSION_NOT_FOUND", 404, "FATAL", "client", false, None),
    ("stream_not_found", "SESSION_NOT_FOUND", 404, "FATAL", "client", false, None),
    ("stream_expired", "SESSION_NOT_FOUND", 410, "FATAL", "client", true, None),
    ("stream_lost", "SESSION_NOT_FOUND", 410, "FATAL", "system", true, None),
    ("service_unavailable", "SERVICE_UNAVAILABLE", 503, "TRANSIENT", "system", true, None),
    ("run_interrupted", "SERVICE_UNAVAILABLE", 503, "TRANSIENT", "system", true, None),
    ("journal_unavailable", "SERVICE_UNAVAILABLE", 503, "TRANSIENT", "system", true, None),
    ("upstream_error", "UPSTREAM_ERROR", 502, "TRANSIENT", "llm", true, None),
    ("upstream_unreachable", "UPSTREAM_ERROR", 502, "TRANSIENT", "llm", true, None),
    ("upstream_truncated", "UPSTREAM_ERROR", 502, "TRANSIENT", "llm", true, None),
    ("upstream_malformed", "UPSTREAM_ERROR", 502, "TRANSIENT", "llm", true, None),
    ("upstream_auth", "UPSTREAM_ERROR", 502, "FATAL", "llm", false, None),
    ("upstream_quota", "UPSTREAM_ERROR", 502, "FATAL", "llm", false, None),
    ("model_not_found", "UPSTREAM_ERROR", 502, "FATAL", "llm", false, None),
    ("context_length_exceeded", "UPSTREAM_ERROR", 502, "FATAL", "llm", false, None),
    ("content_refused", "UPSTREAM_ERROR", 502, "FATAL", "llm", false, None),
    ("not_translated", "INVALID_REQUEST", 400, "FATAL", "client", false, None),
    ("attempt_diverged", "AGENT_EXECUTION_ERROR", 500, "FATAL", "system", true, None),
    ("stream_too_long", "AGENT_EXECUTION_ERROR", 500, "FATAL", "system", false, None),
    ("agent_execution_error", "AGENT_EXECUTION_ERROR", 500, "FATAL", "system", false, None),
];

#[test]
fn the_catalogue_is_the_contracts_table() {
    let found: Vec<_> = CATALOGUE
        .iter()
        .map(|e| {
            (
                e.code,
                e.agui.as_str(),
                e.status,
                e.severity.as_str(),
                e.domain.as_str(),
                e.retryable,
                e.retry_after,
            )
        })
        .collect();
    assert_eq!(found, TABLE);
}

#[test]
fn there_are_five_error_domains() {
    let words = json!(["client", "system", "llm", "tool", "security"]);
    assert_eq!(serde_json::to_value(ErrorDomain::ALL).unwrap(), words);
    assert_eq!(serde_json::from_value::<Vec<ErrorDomain>>(words).unwrap(), ErrorDomain::ALL);
}

/// Any fault, foreign codes of any kind among them.
fn any_fault() -> impl Strategy<Value = Fault> {
    let kind = prop::sample::select(FaultKind::ALL.to_vec());
    let severity = prop::sample::select(ErrorSeverity::ALL.to_vec());
    let wait = prop::option::of(0_u32..100_000);
    let details = prop::collection::hash_map("[a-m_]{1,6}", any::<i32>(), 0..3);
    (kind, prop::option::of("x_[a-z]{1,8}"), ".{0,12}", severity, any::<bool>(), wait, details)
        .prop_map(|(kind, foreign, message, severity, retryable, wait, details)| {
            let fault = Fault::new(kind)
                .with_message(message)
                .with_severity(severity)
                .with_retryable(retryable);
            let fault = details
                .into_iter()
                .fold(fault, |fault, (name, value)| fault.with_detail(name, value));
            let fault = match wait {
                Some(seconds) => fault.with_retry_after(seconds),
                None => fault.without_retry_after(),
            };
            let Some(code) = foreign else { return fault };
            // A foreign code can only be read.
            let mut problem = fault.to_problem(Exposure::Production);
            problem.code = code;
            Fault::from(problem)
        })
}

proptest! {
    #[test]
    fn every_dialect_that_names_a_fault_keeps_all_of_it(fault in any_fault()) {
        let stream_error = fault.to_stream_error(Exposure::Production);
        let stream_error = serde_json::to_string(&stream_error).unwrap();
        prop_assert_eq!(&Fault::from(serde_json::from_str::<StreamError>(&stream_error).unwrap()),
        &fault);
        let problem = serde_json::to_string(&fault.to_problem(Exposure::Production)).unwrap();
        prop_assert_eq!(&Fault::from(serde_json::from_str::<Problem>(&problem).unwrap()), &fault);
        for form in [RunErrorForm::Story, RunErrorForm::MetadataOnly] {
            let event = fault.to_run_error(Exposure::Production).to_event(form, None);
            let text = serde_json::to_string(&event).unwrap();
            let event: AguiEvent = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&Fault::from(RunError::from_event(&event).unwrap()), &fault);
        }
    }
}
