//! What a key or a token may do. A key that may only read starts, arms and stops nothing.

use std::fmt;

/// A kind of thing that a caller does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Start a run, attach to it with its request, arm it.
    Run,
    /// Read streams, sessions and agents, and get tickets.
    Read,
    /// Stop a run.
    Stop,
    /// Erase streams and sessions. What is under way is stopped first, so that it takes `stop` as
    /// well.
    Purge,
}

impl Scope {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Run, Self::Read, Self::Stop, Self::Purge];

    /// Its word in files and tokens.
    pub fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Read => "read",
            Self::Stop => "stop",
            Self::Purge => "purge",
        }
    }

    /// The scope of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.word() == word)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What a request does, whichever protocol it speaks. Routes and methods of protocols name their
/// operation; only this table says which scopes that needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Start a run, or attach to it with its request.
    Start,
    /// Read streams, sessions, agents, or what a client asked to be notified of.
    Read,
    /// Stop a run; the answer shows nothing of what it said.
    Stop,
    /// Stop a run, and answer with all that it said.
    StopAndRead,
    /// Erase a stream or a session. What is under way is stopped first.
    Purge,
    /// Send what a run says to an address that the caller names.
    Notify,
    /// Send no more.
    StopNotifying,
}

impl Operation {
    /// The scopes that a key or token needs for it, all of them.
    pub fn scopes(self) -> &'static [Scope] {
        match self {
            Self::Start | Self::StopNotifying => &[Scope::Run],
            Self::Read => &[Scope::Read],
            Self::Stop => &[Scope::Stop],
            Self::StopAndRead => &[Scope::Read, Scope::Stop],
            Self::Purge => &[Scope::Stop, Scope::Purge],
            Self::Notify => &[Scope::Run, Scope::Read],
        }
    }
}

/// Some of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self(0b1111);

    /// Whether this one is among them.
    pub fn has(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// The first scope that an operation needs and that is not among them.
    pub fn lacks(self, operation: Operation) -> Option<Scope> {
        operation.scopes().iter().copied().find(|scope| !self.has(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Scope::ALL.into_iter().filter(|scope| self.has(*scope)).map(Scope::word);
        f.debug_set().entries(words).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_known_by_its_word_and_stands_for_itself_alone() {
        for scope in Scope::ALL {
            assert_eq!(Scope::of_word(scope.word()), Some(scope));
            let only: Scopes = [scope].into_iter().collect();
            let others = Scope::ALL.into_iter().filter(|other| *other != scope);
            assert!(only.has(scope) && others.clone().all(|other| !only.has(other)));
            assert!(Scopes::ALL.has(scope) && !Scopes::NONE.has(scope));
        }
        assert_eq!(Scope::of_word("Read"), None);
    }
}
