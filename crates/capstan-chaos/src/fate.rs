//! What happens to one stream: drawn from the settings by seed and number alone, before anything is
//! known of it.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::faults::{After, At, Faults, Hangup, Refuse, Stall, Then, With};
use crate::strike_point::{Spot, StrikePoint};

/// The depth of a cut inside a frame: after the id and inside the data of a usual packet.
const DEPTH: RangeInclusive<u64> = 1..=160;

/// The faults of one stream, unless the budget is used up first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fate {
    /// It is not even forwarded.
    pub refuse: Option<Refusal>,
    /// Its response is held back.
    pub delay: Option<Duration>,
    /// The limit in bytes per second.
    pub throttle: Option<u64>,
    /// It arrives byte by byte.
    pub drip: bool,
    /// The number of packets to repeat.
    pub repeat: Option<usize>,
    /// It falls silent.
    pub stall: Option<Stalling>,
    /// It stops early.
    pub stop: Option<Stopping>,
}

/// An answer of the proxy's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: u16,
    /// The value of `Retry-After`, in seconds.
    pub retry_after: Option<u32>,
}

/// Silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stalling {
    /// The place.
    pub place: StrikePoint,
    /// The duration.
    pub time: Duration,
    /// The cut after it, if there is one.
    pub then: Option<Hangup>,
}

/// How a stream ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopping {
    /// Hung up before the response's head.
    BeforeHead(Hangup),
    /// Hung up in the body.
    Cut(StrikePoint, Hangup),
    /// The body ends well-formed, too early.
    End(StrikePoint),
}

impl Stopping {
    /// The place in the body, if it is there.
    pub(crate) fn place(&self) -> Option<&StrikePoint> {
        match self {
            Self::BeforeHead(_) => None,
            Self::Cut(place, _) | Self::End(place) => Some(place),
        }
    }
}

impl Fate {
    /// The fate of the `number`-th stream (from 0): a pure function of settings, seed and number.
    ///
    /// Every kind has a random generator of its own, so that changing one rate leaves the other
    /// kinds unchanged.
    pub fn draw(faults: &Faults, seed: u64, number: u64) -> Self {
        if number < faults.spare {
            return Self::default();
        }
        let dice = |kind: u64| Dice::new(&[seed, number, kind]);
        Self {
            refuse: dice(1).hit(faults.refuse.rate, |dice| refusal(&faults.refuse, dice)),
            delay: dice(2).hit(faults.delay.rate, |dice| dice.time(&faults.delay.time)),
            throttle: dice(3)
                .hit(faults.throttle.rate, |_| faults.throttle.bytes_per_second.max(1)),
            drip: dice(4).hit(faults.drip.rate, |_| ()).is_some(),
            repeat: dice(5).hit(faults.repeat.rate, |_| faults.repeat.packets),
            stall: dice(6)
                .hit(faults.stall.rate, |dice| stalling(&faults.stall, faults.cut.with, dice)),
            stop: dice(7)
                .hit(faults.cut.rate, |dice| cut(faults, dice))
                .or_else(|| dice(8).hit(faults.end.rate, |dice| end(&faults.end.after, dice))),
        }
    }
}

fn refusal(refuse: &Refuse, dice: &mut Dice) -> Refusal {
    let status = dice.choose(&refuse.statuses).unwrap_or(503);
    Refusal { status, retry_after: refuse.retry_after }
}

fn stalling(stall: &Stall, with: With, dice: &mut Dice) -> Stalling {
    let (place, time) = (dice.place(&stall.after, Spot::Here), dice.time(&stall.time));
    let hangup = dice.hangup(with);
    let is_cut = match stall.then {
        Then::Continue => false,
        Then::Cut => true,
        Then::Any => dice.number(&(0..=1)) == 1,
    };
    Stalling { place, time, then: is_cut.then_some(hangup) }
}

fn cut(faults: &Faults, dice: &mut Dice) -> Stopping {
    let hangup = dice.hangup(faults.cut.with);
    let is_any = faults.cut.at == At::Any;
    let drawn = dice.choose(&[At::Exact, At::Frame, At::Character, At::Head]);
    let at = drawn.filter(|_| is_any).unwrap_or(faults.cut.at);
    let spot = match at {
        At::Head => return Stopping::BeforeHead(hangup),
        At::Exact | At::Any => Spot::Here,
        At::Frame => Spot::Inside(dice.number(&DEPTH)),
        At::Character => Spot::Character,
    };
    Stopping::Cut(dice.place(&faults.cut.after, spot), hangup)
}

fn end(after: &After, dice: &mut Dice) -> Stopping {
    Stopping::End(dice.place(after, Spot::Boundary))
}

/// SplitMix64. Written out rather than taken from a crate, because a seed in a bug report must mean
/// the same next year.
struct Dice(u64);

impl Dice {
    fn new(parts: &[u64]) -> Self {
        parts.iter().fold(Self(0), |mut dice, part| Self(dice.next() ^ part))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Draws the parameters, if the fault happens at this rate.
    fn hit<T>(mut self, rate: f64, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        // 53 bits are what an f64 holds: a number in [0, 1), so that 1 is always and 0 never.
        let unit = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        (unit < rate).then(|| draw(&mut self))
    }

    /// A number of the range; its start if the range is empty. The modulo's bias is of no account
    /// here.
    fn number(&mut self, range: &RangeInclusive<u64>) -> u64 {
        let width = range.end().saturating_sub(*range.start());
        range.start() + self.next().checked_rem(width.wrapping_add(1)).unwrap_or_default()
    }

    fn choose<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let last = from.len().checked_sub(1)?;
        from.get(self.number(&(0..=last as u64)) as usize).copied()
    }

    fn time(&mut self, range: &RangeInclusive<Duration>) -> Duration {
        let nanos = |time: &Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.number(&(nanos(range.start())..=nanos(range.end()))))
    }

    fn place(&mut self, after: &After, spot: Spot) -> StrikePoint {
        match after {
            After::Packets(range) => StrikePoint { bytes: 0, packets: self.number(range), spot },
            After::Bytes(range) => StrikePoint { bytes: self.number(range), packets: 0, spot },
        }
    }

    fn hangup(&mut self, choice: With) -> Hangup {
        match choice {
            With::Reset => Hangup::Reset,
            With::Fin => Hangup::Fin,
            With::Any => self.choose(&[Hangup::Reset, Hangup::Fin]).unwrap_or(Hangup::Reset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(faults: &Faults, seed: u64) -> Vec<Fate> {
        (0..500).map(|number| Fate::draw(faults, seed, number)).collect()
    }

    #[test]
    fn the_same_seed_draws_the_same_fates_and_another_seed_others() {
        let faults = Faults::brutal();
        assert_eq!(fates(&faults, 7), fates(&faults, 7));
        assert_ne!(fates(&faults, 7), fates(&faults, 8));
    }

    /// A seed in a bug report stays valid: these must never change.
    #[test]
    fn the_dice_fall_as_they_always_did() {
        let mut dice = Dice(0);
        let first: Vec<u64> = (0..3).map(|_| dice.next()).collect();
        // The reference values of SplitMix64 for seed 0.
        assert_eq!(first, [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F]);
    }

    #[test]
    fn rates_are_kept_and_the_ends_are_certain() {
        let with = |rate| Faults { drip: crate::Drip { rate }, ..Faults::none() };
        let dripping = |rate| fates(&with(rate), 1).iter().filter(|fate| fate.drip).count();
        assert_eq!((dripping(0.0), dripping(1.0), dripping(f64::NAN)), (0, 500, 0));
        assert!((100..200).contains(&dripping(0.3)), "{}", dripping(0.3));
    }

    #[test]
    fn one_rate_does_not_move_the_other_kinds() {
        let calm = Faults {
            delay: crate::Delay { rate: 0.0, ..Faults::brutal().delay },
            ..Faults::brutal()
        };
        let without_delay =
            fates(&Faults::brutal(), 3).into_iter().map(|fate| Fate { delay: None, ..fate });
        assert!(without_delay.eq(fates(&calm, 3)));
    }

    #[test]
    fn brutal_draws_every_kind_and_none_draws_nothing() {
        let all = fates(&Faults::brutal(), 1);
        for is_drawn in [
            |f: &Fate| f.refuse.is_some(),
            |f: &Fate| f.delay.is_some(),
            |f: &Fate| f.throttle.is_some(),
            |f: &Fate| f.drip,
            |f: &Fate| f.repeat.is_some(),
            |f: &Fate| f.stall.is_some_and(|s| s.then.is_some()),
            |f: &Fate| f.stall.is_some_and(|s| s.then.is_none()),
            |f: &Fate| matches!(f.stop, Some(Stopping::BeforeHead(_))),
            |f: &Fate| matches!(f.stop, Some(Stopping::Cut(_, Hangup::Reset))),
            |f: &Fate| matches!(f.stop, Some(Stopping::Cut(_, Hangup::Fin))),
            |f: &Fate| matches!(f.stop, Some(Stopping::End(_))),
        ] {
            assert!(all.iter().any(is_drawn));
        }
        assert!(fates(&Faults::none(), 1).iter().all(|fate| *fate == Fate::default()));
    }

    #[test]
    fn the_first_streams_are_spared() {
        let faults = Faults { spare: 2, drip: crate::Drip { rate: 1.0 }, ..Faults::none() };
        let drips: Vec<bool> = fates(&faults, 1).iter().take(3).map(|fate| fate.drip).collect();
        assert_eq!(drips, [false, false, true]);
    }

    #[test]
    fn strange_ranges_draw_something() {
        let mut dice = Dice(1);
        #[allow(clippy::reversed_empty_ranges)]
        let empty = 5..=3;
        assert_eq!(dice.number(&empty), 5);
        dice.number(&(0..=u64::MAX));
    }
}
