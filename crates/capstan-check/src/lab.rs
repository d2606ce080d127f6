//! What checks share: the connection to the server, and the recorded runs. Each run starts once,
//! when the first check needs it.

use std::sync::{Mutex, PoisonError};

use tokio::sync::OnceCell;
use tokio::time::Instant;
use uuid::Uuid;

use crate::frames::Frames;
use crate::outcome::{NotPassed, Outcome};
use crate::question::Question;
use crate::recording::{AguiResumed, Recording, Resumed, Stopped};
use crate::target::{Queries, Target};
use crate::wire::{Ask, End, Exchange, Live, Who, broken, innermost};

/// A value that is made once, or the reason why that failed.
pub(crate) type Shared<T> = OnceCell<Result<T, NotPassed>>;

/// A key that no server has issued.
const NO_KEY: &str = "capstan-check-is-nobodys-key";

pub(crate) struct Lab {
    pub(crate) target: Target,
    /// The path for CAP requests.
    pub(crate) assist: String,
    /// The path for AG-UI requests.
    pub(crate) agui: String,
    http: reqwest::Client,
    secrets: Mutex<Vec<String>>,
    refusals: Mutex<Vec<Exchange>>,
    plain: Shared<Recording>,
    fault: Shared<Recording>,
    pub(crate) resumed: Shared<Vec<Resumed>>,
    pub(crate) stopped: Shared<Stopped>,
    pub(crate) openai: Shared<Recording>,
    pub(crate) chat: Shared<Recording>,
    pub(crate) messages: Shared<Recording>,
    pub(crate) messages_cut: Shared<Recording>,
    pub(crate) ai_sdk: Shared<Recording>,
    pub(crate) a2a: Shared<Recording>,
    agui_plain: Shared<Recording>,
    agui_fault: Shared<Recording>,
    pub(crate) agui_resumed: Shared<Vec<AguiResumed>>,
}

impl Lab {
    pub(crate) fn new(target: Target) -> Result<Self, reqwest::Error> {
        // Redirects are not followed: the contract has none.
        let http = capstan_client::transport::http_client()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(target.timeout)
            .tcp_nodelay(true)
            .build()?;
        let secrets = [&target.key, &target.other_key].into_iter().flatten().cloned().collect();
        Ok(Self {
            target,
            assist: String::new(),
            agui: String::new(),
            http,
            secrets: Mutex::new(secrets),
            refusals: Mutex::default(),
            plain: OnceCell::new(),
            fault: OnceCell::new(),
            resumed: OnceCell::new(),
            stopped: OnceCell::new(),
            openai: OnceCell::new(),
            chat: OnceCell::new(),
            messages: OnceCell::new(),
            messages_cut: OnceCell::new(),
            ai_sdk: OnceCell::new(),
            a2a: OnceCell::new(),
            agui_plain: OnceCell::new(),
            agui_fault: OnceCell::new(),
            agui_resumed: OnceCell::new(),
        })
    }

    /// The path of a face, for the named agent if there is one.
    pub(crate) fn below(&self, face: &str) -> String {
        match &self.target.agent {
            Some(agent) => format!("{}/{face}", of_agent(agent)),
            None => format!("/v1/{face}"),
        }
    }

    /// Sends a request; returns when the head of the response is there.
    pub(crate) async fn open(&self, ask: &Ask) -> Result<Live, NotPassed> {
        let wrong = |why: String| broken(ask, "an answer", why);
        let url = self.target.at(&ask.path).map_err(|e| wrong(e.to_string()))?;
        let mut request = self.http.request(ask.method.clone(), url);
        for (name, value) in &ask.headers {
            request = request.header(*name, value);
        }
        let key = match ask.who {
            Who::Tenant => self.target.key.as_deref(),
            Who::Other => self.target.other_key.as_deref(),
            Who::Nobody => None,
            Who::Stranger => Some(NO_KEY),
        };
        request = key.into_iter().fold(request, reqwest::RequestBuilder::bearer_auth);
        request = ask.body.iter().cloned().fold(request, reqwest::RequestBuilder::body);
        let deadline = Instant::now() + self.target.timeout;
        let response = match tokio::time::timeout_at(deadline, request.send()).await {
            Ok(response) => {
                response.map_err(|error| wrong(format!("no answer: {}", innermost(error))))?
            }
            Err(_) => return Err(wrong(format!("no answer within {:?}", self.target.timeout))),
        };
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let seen =
            Exchange { sent: ask.to_string(), status, headers, body: Vec::new(), end: End::Left };
        Ok(Live { response, seen, deadline })
    }

    /// Sends a request and reads the complete response.
    pub(crate) async fn send(&self, ask: &Ask) -> Result<Exchange, NotPassed> {
        Ok(self.open(ask).await?.finish().await)
    }

    /// Expects a refusal with this status and code. It records correct refusals, for the checks of
    /// their form.
    pub(crate) async fn refused(&self, ask: &Ask, status: u16, code: &str) -> Outcome {
        let exchange = self.send(ask).await?;
        let is_so = exchange.status == status && exchange.code().as_deref() == Some(code);
        exchange.expect(is_so, format!("{status} with the code {code}"))?;
        self.note_refusal(exchange);
        Ok(())
    }

    pub(crate) fn note_refusal(&self, exchange: Exchange) {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).push(exchange);
    }

    /// The refusals so far.
    pub(crate) fn refusals(&self) -> Result<Vec<Exchange>, NotPassed> {
        let all = self.refusals.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if all.is_empty() {
            Err(NotPassed::skip("no request was refused as expected"))
        } else {
            Ok(all)
        }
    }

    /// From now on reports hide this text.
    pub(crate) fn keep_secret(&self, secret: &str) {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).push(secret.to_owned());
    }

    pub(crate) fn secrets(&self) -> Vec<String> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn query(&self) -> &str {
        self.target.queries.plain.as_deref().unwrap_or(Queries::SENTENCE)
    }

    /// A CAP request for a question, as a client sends it.
    pub(crate) fn ask(&self, question: &Question) -> Ask {
        Ask::post(&*self.assist, question.body.clone()).header("accept", "text/event-stream")
    }

    /// An AG-UI request for a question, as a client sends it.
    pub(crate) fn ask_agui(&self, question: &Question) -> Ask {
        Ask::post(&*self.agui, question.body.clone()).header("accept", "text/event-stream")
    }

    /// The plain run.
    pub(crate) async fn plain(&self) -> Result<&Recording, NotPassed> {
        let question = Question::cap(self.query());
        // A trace id that differs from the key, and every chance to compress.
        let ask = self.ask(&question).header("x-request-id", format!("check-{}", Uuid::now_v7()));
        share(&self.plain, self.record(question, ask.header("accept-encoding", "gzip, br, zstd")))
            .await
    }

    /// The run that fails.
    pub(crate) async fn fault(&self) -> Result<&Recording, NotPassed> {
        let question = Question::cap(self.target.queries.fault.as_deref().unwrap_or_default());
        let ask = self.ask(&question);
        share(&self.fault, self.record(question, ask)).await
    }

    /// The plain run in AG-UI.
    pub(crate) async fn agui_plain(&self) -> Result<&Recording, NotPassed> {
        let question = Question::agui(self.query());
        let ask = self.ask_agui(&question).header("accept-encoding", "gzip, br, zstd");
        share(&self.agui_plain, self.record(question, ask)).await
    }

    /// The run that fails, in AG-UI.
    pub(crate) async fn agui_fault(&self) -> Result<&Recording, NotPassed> {
        let question = Question::agui(self.target.queries.fault.as_deref().unwrap_or_default());
        let ask = self.ask_agui(&question);
        share(&self.agui_fault, self.record(question, ask)).await
    }

    pub(crate) async fn record(
        &self,
        question: Question,
        ask: Ask,
    ) -> Result<Recording, NotPassed> {
        let exchange = self.send(&ask).await?;
        let Frames { frames, rest } = exchange.frames();
        Ok(Recording { question, ask, exchange, frames, rest })
    }
}

/// Makes the value, or returns the one that was made before.
pub(crate) async fn share<T>(
    cell: &Shared<T>,
    make: impl Future<Output = Result<T, NotPassed>>,
) -> Result<&T, NotPassed> {
    cell.get_or_init(|| make).await.as_ref().map_err(Clone::clone)
}

/// An agent's name may have any characters, so it is encoded as one segment of a path.
pub(crate) fn of_agent(agent: &str) -> String {
    let mut url = url::Url::parse("http://any").ok();
    if let Some(mut parts) = url.as_mut().and_then(|url| url.path_segments_mut().ok()) {
        parts.clear().extend(["v1", "agents", agent]);
    }
    url.map_or_else(String::new, |url| url.path().to_owned())
}
