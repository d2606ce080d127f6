//! The table of all checks, one row each. A check stands after those that it depends on.

use crate::check::{Check, Face, Use};
use crate::{a2a, agui, ai_sdk, cap, durable, http, messages, openai, tenants};

macro_rules! checks {
    ($($face:ident $id:literal $clause:literal $title:literal $uses:tt $after:tt
    $judge:path;)*) => {
        /// Every check, in the order in which they are made.
        pub static CHECKS: &[Check] = &[$(Check {
            id: $id,
            face: Face::$face,
            clause: $clause,
            title: $title,
            uses: checks!(@uses $uses),
            after: &$after,
            judge: |lab| Box::pin($judge(lab)),
        },)*];
    };
    (@uses [$($used:ident)*]) => { &[$(Use::$used,)*] };
}

checks! {
    // The head of a response.
    Cap "cap.answer" "3 Runs" "A request is answered with a stream" [Plain] [] cap::head::answer;
    Cap "cap.cache-control" "7 Routes" "A stream is not stored and not \
     transformed" [Plain] ["cap.answer"] cap::head::cache_control;
    Cap "cap.buffering" "7 Routes" "A stream is not held back by \
     proxies" [Plain] ["cap.answer"] cap::head::buffering;
    Cap "cap.compression" "7 Routes" "A stream is never \
     compressed" [Plain] ["cap.answer"] cap::head::compression;
    Cap "cap.request-id" "3 Start once" "A plain X-Request-ID comes \
     back" [Plain] ["cap.answer"] cap::head::request_id;
    Cap "cap.opening" "2 Cursor and resume" "A stream opens with its cursor, before the first \
     packet" [Plain] ["cap.answer"] cap::head::opening;

    // Frames and packets.
    Cap "cap.lines" "1 SSE" "Lines end in LF alone" [Plain] ["cap.answer"] cap::packets::lines;
    Cap "cap.frames" "1 SSE" "A frame is event, id, one data \
     line" [Plain] ["cap.answer"] cap::packets::frames;
    Cap "cap.event-name" "1 SSE" "The event is \
     stream.packet" [Plain] ["cap.frames"] cap::packets::event_name;
    Cap "cap.packets" "1 CAP packets" "Packets are strict: five members, \
     typed" [Plain] ["cap.answer"] cap::packets::packets;
    Cap "cap.ids" "2 Cursor and resume" "A frame's id is stream_id and seq of its \
     packet" [Plain] ["cap.packets"] cap::packets::ids;
    Cap "cap.separators" "1 SSE" "Characters that some readers split lines at are \
     escaped" [Plain] ["cap.answer"] cap::packets::separators;
    Cap "cap.one-stream" "2 Cursor and resume" "All packets name one \
     stream" [Plain] ["cap.packets"] cap::packets::one_stream;
    Cap "cap.stream-id" "7 Routes" "X-Stream-ID names the \
     stream" [Plain] ["cap.one-stream"] cap::head::stream_id;
    Cap "cap.seq" "2 Cursor and resume" "seq starts at 1 and has no \
     gaps" [Plain] ["cap.packets"] cap::packets::seq;
    Cap "cap.time" "1 CAP packets" "Times are RFC 3339 in \
     UTC" [Plain] ["cap.packets"] cap::packets::time;
    Cap "cap.close" "3 Every stream ends" "A stream ends with exactly one \
     CLOSE" [Plain] ["cap.packets"] cap::packets::close;
    Cap "cap.end" "2 Cursor and resume" "A body ends, and at a frame's \
     end" [Plain] ["cap.answer"] cap::packets::end;

    // Start once.
    Cap "cap.attach" "3 Start once" "The same request attaches to its run, byte by \
     byte" [Plain] ["cap.close", "cap.end"] cap::start::attach;
    Cap "cap.spacing" "3 Start once" "Spacing and order of members do not make another \
     request" [Plain] ["cap.attach"] cap::start::spacing;
    Cap "cap.race" "3 Start once" "Equal requests at once are one \
     run" [Race] ["cap.attach"] cap::start::race;
    Cap "cap.conflict" "3 Start once" "Another body under the same request_id is \
     409" [Plain] ["cap.attach"] cap::start::conflict;

    // Resume.
    Cap "cap.resume" "2 Cursor and resume" "A cursor continues strictly after it, with the same \
     bytes" [Plain] ["cap.attach", "cap.seq", "cap.ids", "cap.one-stream"] cap::resume::resume;
    Cap "cap.resume-opening" "2 Cursor and resume" "A resumed stream opens at the client's own \
     cursor" [Plain] ["cap.resume", "cap.opening"] cap::resume::opening;
    Cap "cap.resume-bare" "2 Cursor and resume" "A bare stream id replays from the \
     start" [Plain] ["cap.resume"] cap::resume::bare;
    Cap "cap.past-end" "2 Cursor and resume" "A POST at the end gets the CLOSE \
     again" [Plain] ["cap.resume"] cap::resume::past_end;
    Cap "cap.cursor-lost" "2 Cursor and resume" "A cursor above the last packet is 410 \
     stream_lost" [Plain] ["cap.resume"] cap::resume::lost;
    Cap "cap.cursor-foreign" "2 Cursor and resume" "A cursor of another stream is \
     400" [Plain] ["cap.resume"] cap::resume::foreign;
    Cap "cap.cursor-unreadable" "2 Cursor and resume" "A cursor that cannot be read is \
     400" [Plain] ["cap.resume"] cap::resume::unreadable;
    Cap "cap.cursor-unknown" "3 Start once" "A cursor without its run starts none: \
     410" [Plain] ["cap.resume"] cap::resume::unknown;

    // Viewers.
    Cap "cap.watch" "7 Routes" "GET of a stream shows the same bytes" [Plain] ["cap.close",
    "cap.end"] cap::watch::watch;
    Cap "cap.watch-end" "2 Cursor and resume" "GET at the end is 204" [Plain] ["cap.watch",
    "cap.seq"] cap::watch::end;
    Cap "cap.watch-unknown" "3 Start once" "GET of an unknown stream is 404 \
     stream_not_found" [Plain] ["cap.watch"] cap::watch::unknown;
    Cap "cap.after" "2 Cursor and resume" "?after= is a cursor" [Plain] ["cap.watch",
    "cap.seq"] cap::watch::after;
    Cap "cap.header-wins" "2 Cursor and resume" "Last-Event-ID beats ?after=" [Plain] ["cap.watch",
    "cap.seq"] cap::watch::header_wins;
    Cap "cap.profile" "3 What does a request contain" "?profile=v2 shows a stream in profile \
     v2" [Plain] ["cap.watch"] cap::watch::profile;

    // A long run.
    Cap "cap.disconnect" "3 Start once" "A disconnect is not a \
     stop" [Slow] ["cap.resume"] cap::stop::disconnect;
    Cap "cap.stop" "3 Stop" "DELETE answers when CLOSE cancelled is \
     journalled" [Slow] ["cap.watch", "cap.disconnect"] cap::stop::stop;
    Cap "cap.stop-summary" "3 Stop" "DELETE answers with the run's \
     summary" [Slow] ["cap.stop"] cap::stop::summary;
    Cap "cap.stop-viewer" "3 Stop" "Viewers of a stopped run see its \
     CLOSE" [Slow] ["cap.stop"] cap::stop::viewer;
    Cap "cap.stop-again" "3 Stop" "DELETE of a finished run changes \
     nothing" [Slow] ["cap.stop"] cap::stop::again;
    Cap "cap.stop-unknown" "3 Start once" "DELETE of an unknown stream is 404 \
     stream_not_found" [Plain] ["cap.watch"] cap::watch::unknown_stop;
    Cap "cap.heartbeat" "1 SSE" "A silent stream has \
     heartbeats" [Quiet] ["cap.watch"] cap::stop::heartbeat;

    // In one object; in v2.
    Cap "cap.json" "3 JSON mode" "Accept: application/json gets the whole run in one \
     object" [Plain] ["cap.attach"] cap::whole::json;
    Cap "cap.v2" "3 What does a request contain" "A request in profile v2 is answered in \
     v2" [V2] ["cap.end"] cap::whole::v2;

    // A run that fails.
    Cap "cap.error" "1 CAP packets" "An ERROR is a StreamError, never a \
     string" [Fault] ["cap.end"] cap::fail::error;
    Cap "cap.error-code" "1 CAP packets" "An ERROR's code is \
     snake_case" [Fault] ["cap.error"] cap::fail::code;
    Cap "cap.error-close" "3 Every stream ends" "CLOSE follows an ERROR that is \
     FATAL" [Fault] ["cap.error"] cap::fail::close;
    Cap "cap.error-json" "3 JSON mode" "In one object a failed run is a problem with its fault's \
     status" [Fault] ["cap.error-code", "cap.json"] cap::fail::problem;

    // Refusals.
    Cap "http.malformed" "4 Over HTTP" "A body that is not JSON is 400" [] [] http::malformed;
    Cap "http.place" "1 CAP packets" "A refusal names the member that is wrong" [] [] http::place;
    Cap "http.media-type" "5 Who may do what" "A body that is not application/json is \
     415" [] [] http::media_type;
    Cap "http.route" "4 Over HTTP" "An unknown route is 404 route_not_found" [] [] http::route;
    Cap "http.method" "4 Over HTTP" "A wrong method is 405 method_not_allowed" [] [] http::method;
    Cap "http.key-in-url" "5 Who may do what" "A key in a URL is \
     refused" [Plain] ["cap.watch"] http::key_in_url;
    Cap "http.problem" "4 Over HTTP" "A refusal is a problem with all its \
     members" [] ["http.malformed"] http::problem;
    Cap "http.catalogue" "4 Faults" "A refusal agrees with the \
     catalogue" [] ["http.problem"] http::catalogue;
    Cap "http.request-id" "4 Over HTTP" "A refusal names its \
     request" [] ["http.problem"] http::request_id;
    Cap "http.retry-after" "4 Over HTTP" "Retry-After and retry_after \
     agree" [Fault] ["cap.error-json"] http::retry_after;
    Cap "http.page" "4 Over HTTP" "A problem's type is a page" [] ["http.problem",
    "http.catalogue"] http::page;

    // The rest.
    Cap "http.health" "7 Routes" "/health reports the status" [] [] http::health;
    Cap "http.ready" "7 Routes" "/readyz is 200 while runs are taken" [] [] http::ready;
    Cap "http.preflight" "5 Who may do what" "A preflight allows what clients \
     send" [] [] http::preflight;
    Cap "http.exposed" "5 Who may do what" "A page can read what clients need, on refusals \
     too" [] ["http.preflight"] http::exposed;

    // Tenants.
    Cap "tenants.no-key" "5 Who may do what" "No key is 401 \
     tenant_required" [Key] [] tenants::no_key;
    Cap "tenants.wrong-key" "5 Who may do what" "A wrong key is 403 \
     tenant_unauthorized" [Key] [] tenants::wrong_key;
    Cap "tenants.wrong-tenant" "5 Who may do what" "An X-Tenant-ID that does not agree is \
     403" [Key] [] tenants::wrong_tenant;
    Cap "tenants.watch" "5 Who may do what" "Another tenant's stream answers as an unknown \
     one" [Plain Key OtherKey] ["cap.watch"] tenants::watch;
    Cap "tenants.stop" "5 Who may do what" "Stopping another tenant's stream \
     does too" [Plain Key OtherKey] ["cap.watch"] tenants::stop;
    Cap "tenants.keys" "3 Start once" "Request ids are scoped by \
     tenant" [Plain Key OtherRun] ["cap.attach"] tenants::keys;
    Cap "tenants.ticket" "5 Who may do what" "A ticket reads its stream without a \
     key" [Plain Key] ["cap.watch"] tenants::ticket;
    Cap "tenants.ticket-reads" "5 Who may do what" "A ticket opens nothing \
     else" [Plain Key] ["tenants.ticket", "tenants.no-key"] tenants::ticket_reads;
    Cap "tenants.ticket-forged" "5 Who may do what" "A ticket that was changed is \
     none" [Plain Key] ["tenants.ticket", "tenants.no-key"] tenants::forged;

    // AG-UI: a stream of events.
    Agui "agui.answer" "ag-ui.md The contract" "A run input is answered with a \
     stream" [Agui] [] agui::stream::answer;
    Agui "agui.headers" "7 Routes" "A stream is not stored, transformed or \
     compressed" [Agui] ["agui.answer"] agui::stream::headers;
    Agui "agui.lines" "ag-ui.md Frames and ids" "Lines end in LF \
     alone" [Agui] ["agui.answer"] agui::stream::lines;
    Agui "agui.data" "ag-ui.md Frames and ids" "Data is one JSON object: no [DONE], nothing \
     empty" [Agui] ["agui.answer"] agui::stream::data;
    Agui "agui.events" "ag-ui.md Events on the wire" "Events are AG-UI's, with their \
     members" [Agui] ["agui.data"] agui::stream::events;
    Agui "agui.nulls" "ag-ui.md Events on the wire" "Absent members are left out, never \
     null" [Agui] ["agui.data"] agui::stream::nulls;
    Agui "agui.separators" "1 SSE" "Characters that some readers split lines at are \
     escaped" [Agui] ["agui.data"] agui::stream::separators;
    Agui "agui.started" "ag-ui.md From packets to events" "RUN_STARTED comes \
     first" [Agui] ["agui.events"] agui::stream::started;
    Agui "agui.terminal" "ag-ui.md From packets to events" "Exactly one RUN_FINISHED or RUN_ERROR \
     comes \
     last" [Agui] ["agui.events"] agui::stream::terminal;
    Agui "agui.sequence" "ag-ui.md From packets to events" "Messages, steps and calls begin and \
     end in \
     order" [Agui] ["agui.started", "agui.terminal"] agui::stream::sequence;
    Agui "agui.end" "ag-ui.md Frames and ids" "A body ends, and at a frame's \
     end" [Agui] ["agui.answer"] agui::stream::end;
    Agui "agui.ids" "ag-ui.md Frames and ids" "An event's id is a \
     cursor" [Agui] ["agui.data"] agui::stream::ids;
    Agui "agui.unique" "ag-ui.md Frames and ids" "No id \
     repeats" [Agui] ["agui.ids"] agui::stream::unique;

    // AG-UI: coming back.
    Agui "agui.resume" "ag-ui.md Frames and ids" "A resume continues with the next event, with \
     the same \
     bytes" [Agui] ["agui.unique", "agui.terminal", "agui.end"] agui::resume::resume;
    Agui "agui.past-end" "ag-ui.md Frames and ids" "At the end the terminal event comes again, \
     under no \
     id" [Agui] ["agui.resume"] agui::resume::past_end;
    Agui "agui.attach" "ag-ui.md Frames and ids" "The same request attaches to its \
     run" [Agui] ["agui.resume"] agui::resume::attach;
    Agui "agui.join" "ag-ui.md Frames and ids" "offset=-1 replays all \
     events" [Agui] ["agui.resume"] agui::resume::join;
    Agui "agui.other-face" "ag-ui.md The contract" "A stream that was started in CAP can be \
     watched" [Plain Agui] ["cap.watch", "agui.resume"] agui::resume::other_face;

    // AG-UI: failures.
    Agui "agui.unreadable" "ag-ui.md Refusals" "An input that cannot be read is \
     400" [] [] agui::fail::unreadable;
    Agui "agui.conflict" "ag-ui.md Refusals" "A refusal is a stream with RUN_ERROR \
     alone" [Agui] ["agui.resume"] agui::fail::conflict;
    Agui "agui.unknown" "ag-ui.md Refusals" "Joining an unknown run is \
     SESSION_NOT_FOUND" [Agui] ["agui.join"] agui::fail::unknown;
    Agui "agui.version" "ag-ui.md Events on the wire" "A peer with a protocolVersion gets metadata \
     only" [Agui] ["agui.conflict"] agui::fail::version;
    Agui "agui.key-space" "ag-ui.md The contract" "Keys are one space for both \
     faces" [Plain Agui] ["cap.attach", "agui.conflict"] agui::fail::key_space;
    Agui "agui.error" "ag-ui.md Events on the wire" "RUN_ERROR has one of the ten codes, and its \
     status" [AguiFault] ["agui.end"] agui::fail::code;
    Agui "agui.error-members" "ag-ui.md Events on the wire" "RUN_ERROR has the story's members \
     and their \
     metadata" [AguiFault] ["agui.error"] agui::fail::members;
    Agui "agui.error-event" "ag-ui.md Frames and ids" "RUN_ERROR is also the frame's event \
     name" [AguiFault] ["agui.error"] agui::fail::event_name;

    // OpenAI's API.
    OpenAi "openai.answer" "openai.md Answers" "A response is streamed in plain events: no ids, no \
     preamble" [OpenAi] [] openai::answer;
    OpenAi "openai.order" "openai.md Answers" "It is created, then in progress, and its numbers go \
     up" [OpenAi] ["openai.answer"] openai::order;
    OpenAi "openai.terminal" "openai.md Answers" "One terminal event comes last, before a clean \
     end" [OpenAi] ["openai.answer"] openai::terminal;
    OpenAi "openai.resume" "openai.md Answers" "starting_after goes on with the next event, with \
     the \
     same bytes" [OpenAi] ["openai.order", "openai.terminal"] openai::resume;
    OpenAi "openai.once" "openai.md Requests" "An Idempotency-Key is one \
     response" [OpenAi] ["openai.answer"] openai::once;
    OpenAi "openai.error" "openai.md Refusals" "A refusal has OpenAI's shape" [] [] openai::error;
    OpenAi "openai.chat" "openai.md Answers" "A chat's chunks end with one finish_reason and \
     [DONE]" [Chat] [] openai::chat;

    // Anthropic's Messages.
    Messages "messages.answer" "claude-code.md The contract" "A message is answered with events \
     that are named like their types" [Messages] [] messages::answer;
    Messages "messages.order" "claude-code.md The contract" "It begins with message_start, and \
     ends with message_delta and message_stop" [Messages] ["messages.answer"] messages::order;
    Messages "messages.blocks" "claude-code.md The contract" "Blocks follow each other, each with \
     one start and one stop" [Messages] ["messages.answer"] messages::blocks;
    Messages "messages.usage" "claude-code.md The contract" "The usage is whole from the \
     start" [Messages] ["messages.answer"] messages::usage;
    Messages "messages.whole" "claude-code.md The contract" "Without a stream it is one \
     message" [MessagesWhole] [] messages::whole;
    Messages "messages.error" "claude-code.md The contract" "A refusal has Anthropic's \
     shape" [] [] messages::error;
    Messages "messages.fault" "claude-code.md The contract" "A run that fails is an error, never \
     an end" [MessagesFault] [] messages::fault;
    Messages "messages.once" "claude-code.md The contract" "A repeat without a key is the same \
     message, byte by byte" [MessagesOnce] ["messages.order"] messages::once;
    Messages "messages.resume" "claude-code.md The contract" "A retry after a cut gets the \
     complete message" [MessagesCut] ["messages.order"] messages::resume;
    Messages "messages.apart" "claude-code.md The contract" "Two questions never share a \
     message" [Messages MessagesCut] ["messages.order"] messages::apart;
    Messages "messages.count" "claude-code.md What is there?" "Tokens are counted without a \
     run" [] [] messages::count;
    Messages "messages.models" "claude-code.md What is there?" "Models are listed in Anthropic's \
     shape for its clients" [] [] messages::models;
    Messages "messages.key" "claude-code.md What is there?" "A key may come in \
     x-api-key" [Key] [] messages::key;

    // The AI SDK.
    AiSdk "ai-sdk.answer" "ai-sdk.md The contract" "A chat is answered with a UI message \
     stream" [AiSdk] [] ai_sdk::answer;
    AiSdk "ai-sdk.order" "ai-sdk.md The contract" "It begins with start and its message, and ends \
     with finish and [DONE]" [AiSdk] ["ai-sdk.answer"] ai_sdk::order;
    AiSdk "ai-sdk.replay" "ai-sdk.md The contract" "A client that comes back gets all of it \
     from the start" [AiSdk] ["ai-sdk.order"] ai_sdk::replay;
    AiSdk "ai-sdk.nothing" "ai-sdk.md The contract" "A chat without a run is \
     204" [] [] ai_sdk::nothing;
    AiSdk "ai-sdk.stop" "ai-sdk.md The contract" "DELETE ends the run, and readers see the \
     abort" [AiSdkSlow] ["ai-sdk.answer"] ai_sdk::stop;

    // A2A.
    A2a "a2a.card" "a2a.md The contract" "The card names absolute addresses, and \
     streaming" [] [] a2a::card;
    A2a "a2a.stream" "a2a.md The contract" "A stream is the task, then its updates, and ends after \
     the last status" [A2a] [] a2a::stream;
    A2a "a2a.get" "a2a.md The contract" "A task has all that was streamed of \
     it" [A2a] ["a2a.stream"] a2a::get;
    A2a "a2a.old" "a2a.md The contract" "Version 0.3 has its own words at the same \
     address" [A2a] ["a2a.stream"] a2a::old;
    A2a "a2a.once" "a2a.md The contract" "The same message is the same \
     task" [A2a] ["a2a.stream"] a2a::once;
    A2a "a2a.resume" "a2a.md The contract" "Last-Event-ID goes on with the next event, with the \
     same \
     bytes" [A2a] ["a2a.stream"] a2a::resume;
    A2a "a2a.over" "a2a.md The contract" "A task that is over is neither subscribed to nor \
     cancelled" [A2a] ["a2a.stream"] a2a::over;

    // Durable Streams.
    Durable "durable.read" "durable-streams.md The contract" "A stream that has ended is its \
     packets, \
     up to date and closed" [Plain] ["cap.packets", "cap.close"] durable::read;
    Durable "durable.offset" "durable-streams.md The contract" "An offset goes on with the next \
     packet" [Plain] ["durable.read"] durable::offset;
    Durable "durable.head" "durable-streams.md The contract" "HEAD tells where a stream \
     ends" [Plain] ["durable.read"] durable::head;
    Durable "durable.poll" "durable-streams.md The contract" "A long poll at the end of a closed \
     stream is 204 at once" [Plain] ["durable.read"] durable::poll;
    Durable "durable.write" "durable-streams.md The contract" "Nothing can be \
     written" [Plain] ["durable.read"] durable::write;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_dependencies_stand_first() {
        let mut seen = BTreeSet::new();
        for check in CHECKS {
            for needed in check.after {
                assert!(seen.contains(needed), "{} needs {needed}", check.id);
            }
            assert!(seen.insert(check.id), "{} twice", check.id);
        }
    }

    #[test]
    fn every_clause_is_a_heading_of_its_document() {
        let pages = [
            ("ag-ui.md", include_str!("../../../docs/ag-ui.md")),
            ("openai.md", include_str!("../../../docs/openai.md")),
            ("claude-code.md", include_str!("../../../docs/claude-code.md")),
            ("ai-sdk.md", include_str!("../../../docs/ai-sdk.md")),
            ("a2a.md", include_str!("../../../docs/a2a.md")),
            ("durable-streams.md", include_str!("../../../docs/durable-streams.md")),
        ];
        let mut headings = BTreeSet::new();
        let mut number = "";
        for line in include_str!("../../../PROTOCOL.md").lines() {
            if let Some((n, title)) = line.strip_prefix("## ").and_then(|at| at.split_once(". ")) {
                number = n;
                headings.insert(format!("{n} {title}"));
            } else if let Some(title) = line.strip_prefix("### ") {
                headings.insert(format!("{number} {title}"));
            }
        }
        for (page, text) in pages {
            let titles = text.lines().filter(|line| line.starts_with("##"));
            headings.extend(titles.map(|t| format!("{page} {}", t.trim_start_matches(['#', ' ']))));
        }
        for check in CHECKS {
            let is_there = headings.iter().any(|heading| heading.starts_with(check.clause));
            assert!(is_there, "{}: no section {:?} in {headings:#?}", check.id, check.clause);
        }
    }
}
