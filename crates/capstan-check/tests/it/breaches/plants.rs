//! The breaches: one for each check. Each changes a request or a response of the gateway.

use serde_json::{Value, json};

use crate::breaches::proxy::{Answer, Sent};
use crate::common::{KEY, OTHER_KEY};

pub(crate) struct Breach {
    pub(crate) breaks: &'static str,
    pub(crate) sent: fn(&mut Sent),
    pub(crate) answer: fn(&Sent, &mut Answer),
    pub(crate) frame: fn(&Sent, &str) -> String,
}

/// Changes nothing.
pub(crate) const NONE: Breach =
    Breach { breaks: "", sent: |_| (), answer: |_, _| (), frame: |_, frame| frame.to_owned() };

const fn sent(breaks: &'static str, sent: fn(&mut Sent)) -> Breach {
    Breach { breaks, sent, ..NONE }
}

const fn answer(breaks: &'static str, answer: fn(&Sent, &mut Answer)) -> Breach {
    Breach { breaks, answer, ..NONE }
}

const fn frame(breaks: &'static str, frame: fn(&Sent, &str) -> String) -> Breach {
    Breach { breaks, frame, ..NONE }
}

impl Sent {
    fn is_assist(&self) -> bool {
        self.path.starts_with("/v1/assist")
    }

    fn is_agui(&self) -> bool {
        self.path.starts_with("/v1/ag-ui")
    }

    fn is(&self, method: &str, path: &str) -> bool {
        self.method == method && self.path.starts_with(path)
    }

    fn is_retry(&self) -> bool {
        self.header("x-stainless-retry-count") == "1"
    }

    fn has_cursor(&self) -> bool {
        !self.header("last-event-id").is_empty()
    }

    /// Whether this is the plain question, in any face.
    fn is_plain(&self) -> bool {
        self.body.contains("A capstan turns")
    }

    fn is_fault(&self) -> bool {
        self.body.contains("/fault")
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// The request's key.
    fn run(&self) -> String {
        let json = self.json();
        json["request_id"].as_str().or(json["runId"].as_str()).unwrap_or_default().to_owned()
    }

    /// Gives the request a new key.
    fn renew(&mut self) {
        let fresh = uuid();
        self.body = self.body.replace(&self.run(), &fresh);
    }

    fn drop_query(&mut self) {
        self.path = self.path.split('?').next().unwrap().to_owned();
    }

    fn set(&mut self, name: &'static str, value: &str) {
        self.headers.insert(name, value.parse().unwrap());
    }

    fn has_key(&self, key: &str) -> bool {
        self.header("authorization").ends_with(key)
    }

    fn become_owner(&mut self) {
        self.set("authorization", &format!("Bearer {KEY}"));
    }
}

impl Answer {
    fn is_stream(&self) -> bool {
        self.body.is_none()
    }

    fn says(&self, word: &str) -> bool {
        self.body.as_ref().is_some_and(|body| body.contains(word))
    }

    fn replace(&mut self, from: &str, to: &str) {
        self.body = self.body.take().map(|body| body.replace(from, to));
    }

    fn set(&mut self, name: &'static str, value: &str) {
        self.headers.insert(name, value.parse().unwrap());
    }
}

fn uuid() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("7c9e6679-7425-40de-944b-{:012x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The packet or event of a frame, changed.
fn edit(frame: &str, change: impl Fn(&mut Value)) -> String {
    let line = |line: &str| match line.strip_prefix("data: ") {
        Some(data) => {
            let mut json = serde_json::from_str(data).unwrap();
            change(&mut json);
            format!("data: {json}")
        }
        None => line.to_owned(),
    };
    frame.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

fn is_packet(frame: &str) -> bool {
    frame.contains("\ndata: ") || frame.starts_with("data: ")
}

fn has_seq(frame: &str, seq: u64) -> bool {
    is_packet(frame) && frame.contains(&format!(":{seq}\n"))
}

fn keep_if(is_kept: bool, frame: &str) -> String {
    if is_kept { frame.to_owned() } else { String::new() }
}

/// Changes frames of CAP streams, for every reader.
fn in_cap(sent: &Sent, frame: &str, change: impl Fn(&str) -> String) -> String {
    if sent.is_agui() || sent.path.contains("face=ag-ui") {
        frame.to_owned()
    } else {
        change(frame)
    }
}

fn in_agui(sent: &Sent, frame: &str, change: impl Fn(&str) -> String) -> String {
    if sent.is_agui() { change(frame) } else { frame.to_owned() }
}

/// Members of `data` of the run that fails.
fn in_fault(sent: &Sent, frame: &str, mark: &str, change: impl Fn(&str) -> String) -> String {
    if sent.is_fault() && frame.contains(mark) { change(frame) } else { frame.to_owned() }
}

pub(crate) static BREACHES: &[Breach] = &[
    // The head of a response.
    answer("cap.answer", |s, a| {
        if s.is_assist() && a.is_stream() {
            a.set("content-type", "text/plain");
        }
    }),
    answer("cap.cache-control", |s, a| {
        if s.is_assist() {
            a.headers.remove("cache-control");
        }
    }),
    answer("cap.buffering", |s, a| {
        if s.is_assist() {
            a.headers.remove("x-accel-buffering");
        }
    }),
    answer("cap.compression", |s, a| {
        if s.is_assist() && a.is_stream() {
            a.set("content-encoding", "gzip");
        }
    }),
    answer("cap.request-id", |_, a| {
        if a.is_stream() {
            a.set("x-request-id", "another");
        }
    }),
    answer("cap.stream-id", |s, a| {
        if s.is_assist() {
            a.headers.remove("x-stream-id");
        }
    }),
    frame("cap.opening", |s, f| {
        keep_if(!f.starts_with("retry:") || s.has_cursor() || s.is_agui(), f)
    }),
    // Frames and packets.
    frame("cap.lines", |s, f| in_cap(s, f, |f| f.replace('\n', "\r\n"))),
    frame("cap.frames", |s, f| {
        in_cap(s, f, |f| if is_packet(f) { format!("x: y\n{f}") } else { f.to_owned() })
    }),
    frame("cap.event-name", |s, f| in_cap(s, f, |f| f.replace("stream.packet", "packet"))),
    frame("cap.packets", |s, f| in_cap(s, f, |f| f.replace("\"seq\":", "\"extra\":1,\"seq\":"))),
    frame("cap.ids", |s, f| {
        in_cap(s, f, |f| if is_packet(f) { f.replace("\ndata:", "x\ndata:") } else { f.to_owned() })
    }),
    frame("cap.separators", |s, f| in_cap(s, f, |f| f.replace("\\u2028", "\u{2028}"))),
    frame("cap.one-stream", |s, f| {
        in_cap(s, f, |f| {
            let stream = f.split("\"stream_id\":\"").nth(1).and_then(|rest| rest.split('"').next());
            stream
                .filter(|_| has_seq(f, 2))
                .map_or(f.to_owned(), |id| f.replace(id, "7c9e6679-7425-40de-944b-e07fc1f90ae7"))
        })
    }),
    frame("cap.seq", |s, f| {
        in_cap(s, f, |f| {
            let seq =
                |text: &str| text.split("\"seq\":").nth(1)?.split(',').next()?.parse::<u64>().ok();
            let Some(seq) = seq(f).filter(|seq| *seq >= 3) else { return f.to_owned() };
            let f = f.replace(&format!(":{seq}\n"), &format!(":{}\n", seq + 1));
            f.replace(&format!("\"seq\":{seq},"), &format!("\"seq\":{},", seq + 1))
        })
    }),
    frame("cap.time", |s, f| in_cap(s, f, |f| f.replace("Z\",\"p\"", "+00:00\",\"p\""))),
    frame("cap.close", |s, f| {
        if s.is_plain() { f.replace("\"op\":\"CLOSE\"", "\"op\":\"EVENT\"") } else { f.to_owned() }
    }),
    frame("cap.end", |s, f| {
        if s.is_assist() && f.contains("\"CLOSE\"") { format!("{f}data: {{") } else { f.to_owned() }
    }),
    // Start once.
    sent("cap.attach", |s| {
        if s.is_assist() && s.is_plain() && !s.has_cursor() && s.note(s.run()) {
            s.renew();
        }
    }),
    sent("cap.spacing", |s| {
        if s.is_assist() && s.body.starts_with("{\n") {
            s.renew();
        }
    }),
    sent("cap.race", |s| {
        // The first plain question is the recorded one; the next new one is raced for.
        if s.is_assist() && s.is_plain() && !s.has_cursor() {
            let first = s.memory.lock().unwrap().first().cloned();
            if first.is_none_or(|first| first == s.run()) {
                s.note(s.run());
            } else {
                s.renew();
            }
        }
    }),
    sent("cap.conflict", |s| {
        if s.is_assist() && s.body.contains("Something else") {
            s.renew();
        }
    }),
    // Resume.
    frame("cap.resume", |s, f| {
        keep_if(!(s.is_assist() && s.header("last-event-id").ends_with(":1") && has_seq(f, 2)), f)
    }),
    frame("cap.resume-opening", |s, f| {
        if s.is_assist() && s.header("last-event-id").contains(':') && f.starts_with("retry:") {
            f.replace(
                s.header("last-event-id"),
                &format!("{}:0", s.header("last-event-id").split(':').next().unwrap()),
            )
        } else {
            f.to_owned()
        }
    }),
    frame("cap.resume-bare", |s, f| {
        let is_bare = s.is_assist() && s.has_cursor() && !s.header("last-event-id").contains(':');
        keep_if(!(is_bare && has_seq(f, 1)), f)
    }),
    frame("cap.past-end", |s, f| {
        let is_again = s.is_assist()
            && s.has_cursor()
            && f.contains(&format!("id: {}\ndata", s.header("last-event-id")));
        keep_if(!is_again, f)
    }),
    answer("cap.cursor-lost", |_, a| {
        if a.says("stream_lost") {
            a.status = 404;
        }
    }),
    answer("cap.cursor-foreign", |s, a| {
        if s.is_assist()
            && s.has_cursor()
            && !s.header("last-event-id").starts_with("no")
            && a.status == 400
        {
            a.status = 409;
        }
    }),
    answer("cap.cursor-unreadable", |s, a| {
        if s.header("last-event-id").starts_with("no") {
            a.status = 500;
        }
    }),
    answer("cap.cursor-unknown", |_, a| {
        if a.says("stream_expired") {
            a.status = 404;
        }
    }),
    // Viewers.
    frame("cap.watch", |s, f| {
        keep_if(!(s.is("GET", "/v1/streams/") && !s.path.contains('?') && has_seq(f, 1)), f)
    }),
    answer("cap.watch-end", |_, a| {
        if a.status == 204 && !a.headers.contains_key("access-control-allow-methods") {
            a.status = 200;
        }
    }),
    answer("cap.watch-unknown", |s, a| {
        if s.method == "GET" && s.has_key(KEY) && a.says("stream_not_found") {
            a.status = 410;
        }
    }),
    sent("cap.after", |s| {
        if s.path.contains("after=2") {
            s.drop_query();
        }
    }),
    sent("cap.header-wins", |s| {
        if s.path.contains("after=0") {
            s.headers.remove("last-event-id");
        }
    }),
    sent("cap.profile", |s| {
        if s.path.contains("profile=v2") {
            s.drop_query();
        }
    }),
    // A long run.
    frame("cap.disconnect", |s, f| {
        if s.has_cursor() && s.body.contains("/tokens") && is_packet(f) {
            edit(f, |packet| (packet["op"], packet["p"]) = (json!("CLOSE"), json!("cancelled")))
        } else {
            f.to_owned()
        }
    }),
    frame("cap.stop", |s, f| {
        if s.method == "GET" { f.replace("\"cancelled\"", "\"completed\"") } else { f.to_owned() }
    }),
    answer("cap.stop-summary", |s, a| {
        if s.is("DELETE", "/v1/streams/") {
            a.replace("\"closed\"", "\"running\"");
        }
    }),
    frame("cap.stop-viewer", |s, f| {
        keep_if(!(s.method == "POST" && f.contains("\"cancelled\"")), f)
    }),
    answer("cap.stop-again", |s, a| {
        if s.method == "DELETE" && a.status == 200 && s.note(s.path.clone()) {
            a.status = 409;
        }
    }),
    answer("cap.stop-unknown", |s, a| {
        if s.method == "DELETE" && s.has_key(KEY) && a.says("stream_not_found") {
            a.status = 410;
        }
    }),
    frame("cap.heartbeat", |_, f| if f == ":\n" { ":\n\n".into() } else { f.to_owned() }),
    // In one object; in v2.
    answer("cap.json", |s, a| {
        if s.is_assist() {
            a.replace("\"text\":\"", "\"text\":\"x");
        }
    }),
    sent("cap.v2", |s| {
        if s.is_assist() && s.body.contains("\"name\":\"Check\"") {
            s.path += "?profile=v1";
        }
    }),
    // A run that fails.
    frame("cap.error", |s, f| {
        in_fault(s, f, "\"ERROR\"", |f| edit(f, |packet| packet["p"] = json!("It failed.")))
    }),
    frame("cap.error-code", |s, f| {
        in_fault(s, f, "\"ERROR\"", |f| edit(f, |packet| packet["p"]["code"] = json!("TooLong")))
    }),
    frame("cap.error-close", |s, f| keep_if(!(s.is_fault() && f.contains("\"op\":\"CLOSE\"")), f)),
    answer("cap.error-json", |_, a| {
        if a.says("\"context_length_exceeded\"") {
            a.status = 200;
        }
    }),
    // Refusals.
    answer("http.malformed", |s, a| {
        if s.is_assist() && s.body == "{\"request_id\": " {
            a.status = 422;
        }
    }),
    answer("http.place", |s, a| {
        if s.body == "{\"request_id\": 7}" {
            a.body = Some("{\"detail\":\"Invalid\"}".into());
        }
    }),
    answer("http.media-type", |_, a| {
        if a.status == 415 {
            a.status = 400;
        }
    }),
    answer("http.route", |_, a| a.replace("route_not_found", "not_found")),
    answer("http.method", |_, a| {
        if a.status == 405 {
            a.status = 404;
        }
    }),
    sent("http.key-in-url", |s| {
        if s.path.contains("api_key=") {
            s.drop_query();
        }
    }),
    answer("http.problem", |_, a| a.replace("\"severity\":\"FATAL\",", "")),
    answer("http.catalogue", |_, a| a.replace("\"/errors/", "\"/problems/")),
    answer("http.request-id", |_, a| {
        if a.status >= 400 {
            a.set("x-request-id", "another");
        }
    }),
    answer("http.retry-after", |_, a| drop(a.headers.remove("retry-after"))),
    answer("http.page", |s, a| {
        if s.path.starts_with("/errors/") {
            a.status = 404;
        }
    }),
    // The rest.
    answer("http.health", |s, a| {
        if s.path.starts_with("/health") {
            a.replace("\"ok\"", "\"fine\"");
        }
    }),
    answer("http.ready", |s, a| {
        if s.path == "/readyz" {
            a.status = 503;
        }
    }),
    answer("http.preflight", |_, a| {
        if a.headers.contains_key("access-control-allow-headers") {
            a.set("access-control-allow-headers", "content-type");
        }
    }),
    answer("http.exposed", |_, a| {
        if a.headers.contains_key("access-control-expose-headers") {
            a.set("access-control-expose-headers", "x-request-id");
        }
    }),
    // Tenants.
    sent("tenants.no-key", |s| {
        if s.is_assist() && s.method == "POST" && s.header("authorization").is_empty() {
            s.become_owner();
        }
    }),
    sent("tenants.wrong-key", |s| {
        if s.has_key("nobodys-key") {
            s.become_owner();
        }
    }),
    sent("tenants.wrong-tenant", |s| drop(s.headers.remove("x-tenant-id"))),
    sent("tenants.watch", |s| {
        if s.method == "GET" && s.has_key(OTHER_KEY) {
            s.become_owner();
        }
    }),
    sent("tenants.stop", |s| {
        if s.method == "DELETE" && s.has_key(OTHER_KEY) {
            s.become_owner();
        }
    }),
    sent("tenants.keys", |s| {
        if s.method == "POST" && s.has_key(OTHER_KEY) {
            s.become_owner();
        }
    }),
    sent("tenants.ticket", |s| {
        if s.method == "GET" && s.path.contains("ticket=") {
            s.drop_query();
        }
    }),
    sent("tenants.ticket-reads", |s| {
        if s.method == "DELETE" && s.path.contains("ticket=") {
            s.become_owner();
        }
    }),
    answer("tenants.ticket-forged", |s, a| {
        if s.method == "GET" && s.path.contains("ticket=") && a.status == 403 {
            a.status = 404;
        }
    }),
    // AG-UI: a stream of events.
    answer("agui.answer", |s, a| {
        if s.is_agui() {
            a.set("content-type", "text/plain");
        }
    }),
    answer("agui.headers", |s, a| {
        if s.is_agui() {
            a.headers.remove("cache-control");
        }
    }),
    frame("agui.lines", |s, f| in_agui(s, f, |f| f.replace('\n', "\r\n"))),
    frame("agui.data", |s, f| {
        in_agui(s, f, |f| {
            if f.contains("RUN_FINISHED") { format!("{f}data: [DONE]\n\n") } else { f.to_owned() }
        })
    }),
    frame("agui.events", |s, f| in_agui(s, f, |f| f.replace("\"delta\":", "\"text\":"))),
    frame("agui.nulls", |s, f| {
        in_agui(s, f, |f| f.replacen("data: {", "data: {\"rawEvent\":null,", 1))
    }),
    frame("agui.separators", |s, f| in_agui(s, f, |f| f.replace("\\u2028", "\u{2028}"))),
    frame("agui.started", |s, f| keep_if(!(s.is_agui() && f.contains("\"RUN_STARTED\"")), f)),
    frame("agui.terminal", |s, f| {
        let is_end = s.is_agui() && f.contains("\"RUN_FINISHED\"");
        // Once more, at a later place.
        if is_end { format!("{f}{}", f.replacen('.', "999.", 1)) } else { f.to_owned() }
    }),
    frame("agui.sequence", |s, f| keep_if(!(s.is_agui() && f.contains("\"TEXT_MESSAGE_END\"")), f)),
    frame("agui.end", |s, f| {
        in_agui(s, f, |f| {
            if f.contains("\"RUN_FINISHED\"") { format!("{f}data: {{") } else { f.to_owned() }
        })
    }),
    frame("agui.ids", |s, f| in_agui(s, f, |f| f.replace(".1\ndata", "\ndata"))),
    frame("agui.unique", |s, f| {
        in_agui(s, f, |f| match f.split("\ndata: ").collect::<Vec<_>>().as_slice() {
            [id, data] if data.contains("_CONTENT") => {
                format!("{}:1.1\ndata: {data}", id.split(':').take(2).collect::<Vec<_>>().join(":"))
            }
            _ => f.to_owned(),
        })
    }),
    // AG-UI: coming back.
    frame("agui.resume", |s, f| {
        keep_if(
            !(s.is_agui()
                && s.header("last-event-id").ends_with(":0.1")
                && f.contains(":1.1\ndata")),
            f,
        )
    }),
    frame("agui.past-end", |s, f| {
        let is_again = s.is_agui() && f.starts_with("data: ") && f.contains("\"RUN_FINISHED\"");
        if is_again { format!("id: {}\n{f}", s.header("last-event-id")) } else { f.to_owned() }
    }),
    sent("agui.attach", |s| {
        if s.is_agui() && s.is_plain() && !s.has_cursor() && s.note(s.run()) {
            s.renew();
        }
    }),
    sent("agui.join", |s| {
        if s.is_agui() {
            s.path = s.path.replace("&offset=-1", "");
        }
    }),
    sent("agui.other-face", |s| {
        if s.path.contains("face=ag-ui") {
            s.drop_query();
        }
    }),
    // AG-UI: failures.
    answer("agui.unreadable", |s, a| {
        if s.is_agui() && a.status == 400 && s.body == "{\"threadId\": " {
            a.status = 422;
        }
    }),
    answer("agui.conflict", |s, a| {
        if s.is_agui() && s.body.contains("Something else") {
            a.status = 409;
        }
    }),
    frame("agui.unknown", |s, f| {
        if s.is("GET", "/v1/ag-ui") {
            f.replace("SESSION_NOT_FOUND", "INVALID_REQUEST")
        } else {
            f.to_owned()
        }
    }),
    sent("agui.version", |s| s.body = s.body.replace("\"protocolVersion\"", "\"version\"")),
    sent("agui.key-space", |s| {
        if s.is_assist() {
            s.note(s.run());
        } else if s.is_agui() && s.is_plain() && s.memory.lock().unwrap().contains(&s.run()) {
            s.renew();
        }
    }),
    frame("agui.error", |s, f| {
        in_fault(s, f, "\"RUN_ERROR\"", |f| edit(f, |event| event["code"] = json!("OOPS")))
    }),
    frame("agui.error-members", |s, f| {
        in_fault(s, f, "\"RUN_ERROR\"", |f| {
            edit(f, |event| drop(event.as_object_mut().unwrap().remove("details")))
        })
    }),
    frame("agui.error-event", |s, f| {
        in_fault(s, f, "\"RUN_ERROR\"", |f| f.replace("event: RUN_ERROR\n", ""))
    }),
    // OpenAI's API.
    frame("openai.answer", |s, f| {
        if s.is("POST", "/v1/responses") { format!("id: 1\n{f}") } else { f.to_owned() }
    }),
    frame("openai.order", |s, f| {
        let is_second = s.is("POST", "/v1/responses") && f.contains("\"response.in_progress\"");
        if is_second { edit(f, |event| event["sequence_number"] = json!(0)) } else { f.to_owned() }
    }),
    frame("openai.terminal", |s, f| {
        keep_if(!(s.is("POST", "/v1/responses") && f.contains("\"response.completed\"")), f)
    }),
    frame("openai.resume", |s, f| {
        keep_if(!(s.is("GET", "/v1/responses") && f.contains("\"response.completed\"")), f)
    }),
    sent("openai.once", |s| {
        if s.is("POST", "/v1/responses") && s.note(s.header("idempotency-key").to_owned()) {
            s.set("idempotency-key", &uuid());
        }
    }),
    answer("openai.error", |s, a| {
        if s.is("POST", "/v1/responses") && a.status == 400 {
            a.body = Some("{}".into());
        }
    }),
    frame("openai.chat", |s, f| keep_if(!(s.is("POST", "/v1/chat") && f.contains("[DONE]")), f)),
    // Anthropic's Messages.
    frame("messages.answer", |s, f| {
        if s.is("POST", "/v1/messages") { format!("id: 1\n{f}") } else { f.to_owned() }
    }),
    frame("messages.order", |s, f| {
        keep_if(!(s.is("POST", "/v1/messages") && f.contains("\"message_stop\"")), f)
    }),
    frame("messages.blocks", |s, f| {
        let is_start = s.is("POST", "/v1/messages") && f.contains("\"content_block_start\"");
        if is_start { format!("{f}{f}") } else { f.to_owned() }
    }),
    frame("messages.usage", |s, f| {
        let is_start = s.is("POST", "/v1/messages") && f.contains("\"message_start\"");
        if is_start { f.replace("cache_read_input_tokens", "cache_read") } else { f.to_owned() }
    }),
    answer("messages.whole", |s, a| {
        if s.is("POST", "/v1/messages") && s.body.contains("\"stream\":false") {
            a.replace("\"stop_reason\"", "\"stop\"");
        }
    }),
    answer("messages.error", |s, a| {
        if s.is("POST", "/v1/messages") && s.body.contains("\"model\":5") {
            a.replace("invalid_request_error", "api_error");
        }
    }),
    Breach {
        answer: |s, a| {
            if s.is("POST", "/v1/messages") && s.is_fault() {
                a.replace("\"type\":\"error\"", "\"type\":\"message\"");
            }
        },
        frame: |s, f| {
            keep_if(
                !(s.is("POST", "/v1/messages") && s.is_fault() && f.contains("event: error")),
                f,
            )
        },
        breaks: "messages.fault",
        ..NONE
    },
    sent("messages.once", |s| {
        if s.is("POST", "/v1/messages") && s.is_retry() {
            s.body = s.body.replace("\"check-once-", &format!("\"check-once-{}-", uuid()));
        }
    }),
    frame("messages.resume", |s, f| {
        let is_retry = s.is("POST", "/v1/messages") && s.is_retry();
        keep_if(!(is_retry && f.contains("\"message_stop\"")), f)
    }),
    frame("messages.apart", |s, f| {
        let is_start = s.is("POST", "/v1/messages") && f.contains("\"message_start\"");
        if is_start {
            edit(f, |event| event["message"]["id"] = json!("msg_one"))
        } else {
            f.to_owned()
        }
    }),
    answer("messages.count", |s, a| {
        if s.path.ends_with("/count_tokens") {
            a.replace("input_tokens", "tokens");
        }
    }),
    answer("messages.models", |s, a| {
        if s.path == "/v1/models" {
            a.replace("\"has_more\"", "\"more\"");
        }
    }),
    sent("messages.key", |s| drop(s.headers.remove("x-api-key"))),
    // The AI SDK.
    answer("ai-sdk.answer", |s, a| {
        if s.is("POST", "/v1/ai-sdk") {
            a.headers.remove("x-vercel-ai-ui-message-stream");
        }
    }),
    frame("ai-sdk.order", |s, f| {
        keep_if(!(s.is("POST", "/v1/ai-sdk") && f.contains("\"type\":\"finish\"")), f)
    }),
    frame("ai-sdk.replay", |s, f| {
        keep_if(!(s.is("GET", "/v1/ai-sdk") && f.contains("\"text-delta\"")), f)
    }),
    answer("ai-sdk.nothing", |s, a| {
        if s.is("GET", "/v1/ai-sdk") && a.status == 204 {
            a.status = 200;
        }
    }),
    frame("ai-sdk.stop", |s, f| {
        keep_if(!(s.is("POST", "/v1/ai-sdk") && f.contains("\"abort\"")), f)
    }),
    // A2A.
    answer("a2a.card", |s, a| {
        if s.path.contains("agent-card") {
            a.body = a
                .body
                .as_ref()
                .map(|body| body.replace("\"streaming\":true", "\"streaming\":false"));
        }
    }),
    frame("a2a.stream", |s, f| {
        keep_if(!(s.body.contains("SendStreamingMessage") && f.contains("\"task\":{")), f)
    }),
    answer("a2a.get", |s, a| {
        if s.body.contains("\"GetTask\"") {
            a.body = a.body.as_ref().map(|body| body.replace("capstan turns", "capstan turned"));
        }
    }),
    answer("a2a.old", |s, a| {
        if s.body.contains("tasks/get") {
            a.body =
                a.body.as_ref().map(|body| body.replace("\"kind\":\"task\"", "\"kind\":\"Task\""));
        }
    }),
    sent("a2a.once", |s| {
        if s.body.contains("\"SendMessage\"") {
            s.body = s.body.replace("\"messageId\":\"", "\"messageId\":\"again-");
        }
    }),
    sent("a2a.resume", |s| {
        if s.body.contains("SubscribeToTask") {
            s.headers.remove("last-event-id");
        }
    }),
    answer("a2a.over", |s, a| {
        if s.body.contains("CancelTask") {
            a.body = a.body.as_ref().map(|body| body.replace("-32002", "-32603"));
        }
    }),
    // Durable Streams.
    answer("durable.read", |s, a| {
        if s.is("GET", "/v1/durable") && !s.path.contains('?') {
            a.headers.remove("stream-closed");
        }
    }),
    answer("durable.offset", |s, a| {
        if s.path.ends_with("?offset=00000000000000000001") {
            a.body = Some("[]".into());
        }
    }),
    answer("durable.head", |s, a| {
        if s.is("HEAD", "/v1/durable") {
            a.headers.remove("stream-next-offset");
        }
    }),
    answer("durable.poll", |s, a| {
        if s.path.contains("live=long-poll") {
            a.headers.remove("stream-closed");
        }
    }),
    answer("durable.write", |s, a| {
        if s.is("POST", "/v1/durable") {
            a.status = 404;
        }
    }),
];
