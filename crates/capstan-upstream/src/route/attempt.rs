//! One attempt of a run on a route: calls one member after another until one answers, or none is
//! left.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_agent::{
    CallBegan, CallEnded, CallOutcome, Failure, Outcome, Output, Receipt, Stopped, Timer, Turn,
    Writer,
};
use capstan_protocol::fault::Cause;
use capstan_protocol::{Backoff, ErrorSeverity, Fault, FaultKind};

use super::config::When;
use super::passes::{Passes, is_stall, is_upstreams, is_wrong_request};
use super::{Member, Route};
use crate::attempt_writer::{AttemptWriter, CallFacts, RouteCall, WriterSlot};
use crate::callee::Ask;
use crate::failed_call::FailedCall;
use crate::prefill::Prefill;
use crate::retries::{OnCut, SHORT_WAIT, is_for_the_client};
use crate::seam::{Seam, prefill_of};

pub(super) struct RouteAttempt<'a> {
    route: &'a Route,
    turn: &'a Turn,
    out: &'a mut Writer,
    /// The members to call, by their indices.
    queue: VecDeque<usize>,
    /// Members that their breaker excludes for now.
    excluded: Vec<usize>,
    failed: Vec<(usize, FailedCall)>,
    /// Calls that the run may still make.
    left: u32,
    /// Calls of this attempt.
    made: u32,
    /// A member whose repeat the budget has paid for.
    paid: Option<usize>,
    /// The retry budget prevented a call.
    is_spent: bool,
    /// Reports about finished calls. They are written when no call has the writer.
    ended: Vec<Output>,
}

/// A finished call.
struct Done {
    at: usize,
    result: Result<(), FailedCall>,
    has_written: bool,
    was_continued: bool,
    facts: CallFacts,
}

impl<'a> RouteAttempt<'a> {
    pub(super) fn new(route: &'a Route, turn: &'a Turn, out: &'a mut Writer) -> Self {
        let queue = route.order(turn, route.clock.instant()).into();
        let left = route.max_calls.saturating_sub(turn.made.calls);
        let (excluded, failed, ended) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            route,
            turn,
            out,
            queue,
            excluded,
            failed,
            left,
            made: 0,
            paid: None,
            is_spent: false,
            ended,
        }
    }

    pub(super) async fn run(mut self) -> Outcome {
        self.check()?;
        loop {
            let Some(at) = self.next() else {
                if self.again().await {
                    continue;
                }
                return Err(self.verdict());
            };
            let done = self.ask(at).await?;
            if let Some(outcome) = self.settle(done).await? {
                return outcome;
            }
        }
    }

    /// Refuses a second start: an earlier attempt may have started work that must not happen twice.
    fn check(&self) -> Result<(), Fault> {
        let has_effects = |name: &str| {
            let member = self.route.members.iter().find(|member| *member.name == *name);
            member.is_none_or(|member| !member.upstream.is_repeatable())
        };
        if self.turn.made.members.iter().any(|made| made.has_reached && has_effects(&made.name)) {
            return Err(Fault::new(FaultKind::RunInterrupted).with_severity(ErrorSeverity::Fatal));
        }
        if self.left == 0 {
            let why = Cause {
                error_type: "Spent".into(),
                chain: vec!["the run's calls are spent".into()],
            };
            let fault =
                Fault::new(FaultKind::UpstreamUnreachable).with_severity(ErrorSeverity::Fatal);
            return Err(fault.with_cause(why));
        }
        Ok(())
    }

    /// The next member to call. If no other is left, one that its breaker excludes.
    fn next(&mut self) -> Option<usize> {
        if self.left == 0 {
            return None;
        }
        while let Some(at) = self.queue.pop_front() {
            let Some(member) = self.route.members.get(at) else { continue };
            if !self.route.breaker.admit(&member.name, self.route.clock.instant()) {
                self.excluded.push(at);
            } else if self.paid.take() == Some(at) || self.may_ask(member) {
                return Some(at);
            } else {
                self.route.breaker.abandoned(&member.name);
                self.is_spent = true;
            }
        }
        if self.made > 0 || self.excluded.is_empty() { None } else { Some(self.excluded.remove(0)) }
    }

    /// Whether the member may be called. The first call of a run is always allowed; further ones
    /// need the budget.
    fn may_ask(&self, member: &Member) -> bool {
        let is_again = self.turn.made.members.iter().any(|made| *made.name == *member.name);
        if is_again {
            return self.route.budget.spend(&member.name);
        }
        self.route.budget.earn(&member.name);
        true
    }

    /// Calls a member. The call has the writer while it answers.
    async fn ask(&mut self, at: usize) -> Result<Done, Stopped> {
        self.begin(at).await?;
        let slot = WriterSlot::new(std::mem::replace(self.out, Writer::closed()));
        let done = self.race(&slot, at).await;
        *self.out = *slot.borrow().ok_or(Stopped)?;
        self.out.put_all(&mut self.ended).await?;
        done
    }

    /// Calls a member. If hedging is on and the first token is late, calls the next member in
    /// parallel.
    async fn race(&mut self, slot: &Arc<WriterSlot>, at: usize) -> Result<Done, Stopped> {
        let (route, turn) = (self.route, self.turn);
        let has_other = !self.queue.is_empty() && self.left > 0;
        let first_token = has_other.then_some(route.first_token);
        let mut first = Box::pin(call(route, turn, at, 1, slot, first_token));
        let Some(delay) = route.hedge.filter(|_| has_other) else { return Ok(first.await) };
        tokio::select! {
            biased;
            done = &mut first => return Ok(done),
            _ = slot.taken() => return Ok(first.await),
            () = route.clock.sleep(Timer::Hedge, delay) => {}
        }
        let Some(beside) = self.beside(at) else { return Ok(first.await) };
        *self.out = *slot.borrow().ok_or(Stopped)?;
        self.begin(beside).await?;
        slot.give_back(Box::new(std::mem::replace(self.out, Writer::closed())));
        let mut second = Box::pin(call(route, turn, beside, 2, slot, None));
        tokio::select! {
            biased;
            by = slot.taken() => {
                // Dropping a call closes its connection.
                let (loser, winner) = if by == 1 {
                    drop(second);
                    (beside, first)
                } else {
                    drop(first);
                    (at, second)
                };
                self.hung_up(loser);
                Ok(winner.await)
            }
            done = &mut first => self.or(done, second).await,
            done = &mut second => self.or(done, first).await,
        }
    }

    /// One of two parallel calls failed without output. Waits for the other one.
    async fn or(&mut self, done: Done, other: impl Future<Output = Done>) -> Result<Done, Stopped> {
        let trouble = done.result.err().unwrap_or_else(empty);
        self.report(done.at, &trouble.fault);
        self.end(done.at, outcome(&trouble), done.facts, true);
        self.failed.push((done.at, trouble));
        Ok(other.await)
    }

    /// The member to call in parallel. Both must be safe to call twice, and the budget must allow
    /// it.
    fn beside(&mut self, first: usize) -> Option<usize> {
        let is_harmless =
            |at: usize| self.route.members.get(at).is_some_and(|m| m.upstream.is_repeatable());
        let place =
            self.queue.iter().position(|at| is_harmless(*at)).filter(|_| is_harmless(first))?;
        let at = *self.queue.get(place)?;
        let member = self.route.members.get(at)?;
        if self.left == 0 || !self.route.breaker.admit(&member.name, self.route.clock.instant()) {
            return None;
        }
        if !self.route.budget.spend(&member.name) {
            self.route.breaker.abandoned(&member.name);
            return None;
        }
        self.queue.remove(place)
    }

    /// Records a call in the journal before it is made, if it is a repeat or may have side effects.
    async fn begin(&mut self, at: usize) -> Result<(), Stopped> {
        let Some(member) = self.route.members.get(at) else { return Ok(()) };
        self.made += 1;
        self.left = self.left.saturating_sub(1);
        let is_written = self.made > 1 || !member.upstream.is_repeatable();
        self.out
            .call(CallBegan {
                member: Some(Arc::clone(&member.name)),
                about: member.upstream.about(),
                receipt: is_written.then(Receipt::default),
            })
            .await
    }

    fn end(&mut self, at: usize, outcome: CallOutcome, facts: CallFacts, is_left: bool) {
        let Some(member) = self.route.members.get(at) else { return };
        let ended = CallEnded {
            member: Arc::clone(&member.name),
            outcome,
            first_token: facts.first_token,
            took: facts.took,
            pieces: facts.pieces,
            usage: facts.usage,
            is_left,
        };
        self.ended.push(Output::CallEnded(Box::new(ended)));
    }

    fn hung_up(&mut self, at: usize) {
        if let Some(member) = self.route.members.get(at) {
            self.route.breaker.abandoned(&member.name);
        }
        self.end(at, CallOutcome::Stopped, CallFacts::default(), false);
    }

    /// Reports a failure to the breaker.
    fn report(&self, at: usize, fault: &Fault) {
        let Some(member) = self.route.members.get(at) else { return };
        if is_upstreams(fault) {
            self.route.breaker.failed(&member.name, self.route.policy, self.route.clock.instant());
        } else {
            self.route.breaker.abandoned(&member.name);
        }
    }

    /// Handles a finished call. Returns the end of the attempt, or `None` if another call follows.
    async fn settle(&mut self, done: Done) -> Result<Option<Outcome>, Stopped> {
        let (at, has_written) = (done.at, done.has_written);
        let Some(member) = self.route.members.get(at) else { return Ok(None) };
        let is_empty =
            !has_written && !done.facts.has_reason && !self.queue.is_empty() && self.left > 0;
        let trouble = match done.result {
            Ok(()) if is_empty => empty(),
            Ok(()) => {
                self.route.breaker.succeeded(&member.name);
                self.end(at, CallOutcome::Answered, done.facts, false);
                self.out.put_all(&mut self.ended).await?;
                return Ok(Some(Ok(())));
            }
            Err(trouble) => trouble,
        };
        // The member cannot continue an answer, which is no failure. It is called again without the
        // prefill.
        if done.was_continued && !has_written && is_wrong_request(&trouble.fault) {
            member.refuses_prefill.store(true, Ordering::Relaxed);
            self.route.breaker.abandoned(&member.name);
            self.end(at, outcome(&trouble), done.facts, false);
            self.out.put_all(&mut self.ended).await?;
            tracing::info!(stream = %self.turn.run, member = %member.name,
            "the prefill was refused; its answers are not continued any more");
            self.paid = Some(at);
            self.queue.push_front(at);
            return Ok(None);
        }
        self.report(at, &trouble.fault);
        let over = self.over(member, &trouble, has_written);
        self.end(at, outcome(&trouble), done.facts, over.is_none() && !self.queue.is_empty());
        self.out.put_all(&mut self.ended).await?;
        if over.is_none() {
            trouble.log_fallback(self.turn, &member.name, self.made);
            self.failed.push((at, trouble));
        }
        Ok(over.map(Err))
    }

    /// The end of the attempt, unless another member may be called.
    fn over(
        &mut self,
        member: &Member,
        trouble: &FailedCall,
        has_written: bool,
    ) -> Option<Failure> {
        let fault = trouble.fault.clone();
        if !member.upstream.is_repeatable() && (has_written || !trouble.is_refusal) {
            return Some(fault.with_severity(ErrorSeverity::Fatal).into());
        }
        match Passes::of(&fault, self.route.on_refusal) {
            Passes::Nowhere => return Some(fault.into()),
            Passes::WithMoreContext => {
                let others = (0..).zip(&self.route.members);
                let longer = others.filter(|(at, other)| {
                    other.when == Some(When::Context)
                        && self.failed.iter().all(|(failed, _)| failed != at)
                });
                self.queue = longer.map(|(at, _)| at).collect();
                self.queue
                    .retain(|at| self.route.members.get(*at).is_none_or(|m| m.name != member.name));
                if self.queue.is_empty() {
                    return Some(fault.into());
                }
            }
            Passes::Elsewhere => {}
        }
        has_written.then(|| self.after_answer(member, fault).into())
    }

    /// After the first token, the next attempt calls the next member, without a wait.
    fn after_answer(&self, member: &Member, fault: Fault) -> Fault {
        let made = &self.turn.made.members;
        let is_other = |other: &&Member| other.name != member.name && other.when.is_none();
        let mut others = self.route.members.iter().filter(is_other).peekable();
        let has_other = others.peek().is_some();
        let has_fresh = others.any(|other| made.iter().all(|made| *made.name != *other.name));
        // After two timeouts, nobody would wait for a third one.
        let is_hopeless = is_stall(fault.code()) && !has_fresh && self.turn.attempt > 1;
        if self.left == 0 || is_hopeless || self.route.on_cut == OnCut::Fail {
            fault.with_severity(ErrorSeverity::Fatal)
        } else if has_other {
            fault.with_severity(ErrorSeverity::Transient).without_retry_after()
        } else {
            fault
        }
    }

    /// All members have failed. Waits for one with a short wait, if the run has calls left for it.
    async fn again(&mut self) -> bool {
        let later = self.route.attempts.saturating_sub(self.turn.attempt);
        if self.left <= later {
            return false;
        }
        let passes = |trouble: &FailedCall| {
            let wait = trouble.wait.unwrap_or_default();
            let is_transient = trouble.fault.severity() == ErrorSeverity::Transient;
            (is_transient && wait <= SHORT_WAIT && !is_stall(trouble.fault.code())).then_some(wait)
        };
        let waits = (0..)
            .zip(&self.failed)
            .filter_map(|(place, (_, trouble))| Some((passes(trouble)?, place)));
        let Some((wait, place)) = waits.min() else { return false };
        let (at, _) = self.failed.remove(place);
        let Some(member) = self.route.members.get(at) else { return false };
        if !self.route.budget.spend(&member.name) {
            self.is_spent = true;
            return true;
        }
        let rounds = self.made / u32::try_from(self.route.members.len()).unwrap_or(1).max(1);
        let backoff = Backoff::DEFAULT.delay(rounds.saturating_sub(1), fastrand::f64());
        self.route.clock.sleep(Timer::Again, wait.max(backoff)).await;
        self.excluded.clear();
        self.paid = Some(at);
        self.queue.push_back(at);
        true
    }

    /// The fault with which the attempt ends: the one that passes soonest.
    fn verdict(mut self) -> Failure {
        let is_transient =
            |trouble: &FailedCall| trouble.fault.severity() == ErrorSeverity::Transient;
        let are_stalls = self.failed.iter().all(|(_, trouble)| is_stall(trouble.fault.code()));
        let best = (0..).zip(&self.failed).min_by_key(|(place, (_, trouble))| {
            (!is_transient(trouble), trouble.fault.retry_after().unwrap_or(0), *place)
        });
        let best = best.map(|(place, _)| place);
        let fault = best.map(|place| self.failed.swap_remove(place).1.fault);
        let fault = fault.unwrap_or_else(|| Fault::new(FaultKind::UpstreamUnreachable));
        if self.left == 0 {
            fault.with_severity(ErrorSeverity::Fatal).into()
        } else if self.is_spent || are_stalls || is_for_the_client(self.turn, &fault) {
            // Another attempt at once would not help. The client may come back later.
            Failure::last(fault)
        } else {
            fault.into()
        }
    }
}

/// Makes one call of one member.
async fn call(
    route: &Route,
    turn: &Turn,
    at: usize,
    number: usize,
    slot: &Arc<WriterSlot>,
    first_token: Option<Duration>,
) -> Done {
    let Some(member) = route.members.get(at) else {
        let result = Err(Fault::new(FaultKind::AgentNotFound).into());
        return Done {
            at,
            result,
            has_written: false,
            was_continued: false,
            facts: CallFacts::default(),
        };
    };
    let prefill = continued(member, turn);
    let seam = prefill.map(|_| Seam::new(&turn.sent.text));
    let route_call = RouteCall::new(
        Arc::clone(&member.name),
        Arc::clone(slot),
        number,
        route.clock.clone(),
        seam,
    );
    let mut writer = AttemptWriter::of_route(route_call);
    let mut result = member.upstream.call(Ask { turn, prefill, first_token }, &mut writer).await;
    if result.is_ok() {
        result = writer.complete().await.map_err(FailedCall::from);
    }
    let (has_written, was_continued) = (writer.has_written(), prefill.is_some());
    Done { at, result, has_written, was_continued, facts: writer.facts() }
}

/// The text that the member should continue: everything that was sent, if it can.
fn continued<'t>(member: &Member, turn: &'t Turn) -> Option<(Prefill, &'t str)> {
    let text = prefill_of(&turn.sent.text).filter(|_| turn.sent.can_continue)?;
    Some((member.prefill()?, text))
}

fn outcome(trouble: &FailedCall) -> CallOutcome {
    CallOutcome::Failed { code: trouble.fault.code().to_owned(), has_reached: !trouble.is_refusal }
}

/// An empty answer counts as a failure while another member can be called.
fn empty() -> FailedCall {
    crate::decode::malformed("the answer is empty").into()
}
