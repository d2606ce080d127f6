//! The scopes of keys and tokens. A key with `read` alone can start, arm and stop nothing.

use std::fmt;

/// A scope of a key or token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Start a run, attach to it with its request, arm it.
    Run,
    /// Read streams, sessions and agents, and get tickets.
    Read,
    /// Stop a run.
    Stop,
    /// Erase streams and sessions. Open runs are stopped first, so this needs `stop` as well.
    Purge,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Run, Self::Read, Self::Stop, Self::Purge];

    /// The scope's name in configuration files and tokens.
    pub fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Read => "read",
            Self::Stop => "stop",
            Self::Purge => "purge",
        }
    }

    /// Finds a scope by its name.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.word() == word)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What a request does, in any protocol. Routes name their operation. Only this table says which
/// scopes an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Start a run, or attach to it with its request.
    Start,
    /// Read streams, sessions, agents, or configs of notifications.
    Read,
    /// Stop a run. The answer contains no content.
    Stop,
    /// Stop a run, and answer with its content.
    StopAndRead,
    /// Erase a stream or a session. Open runs are stopped first.
    Purge,
    /// Send notifications of a run to an address that the caller names.
    Notify,
    /// Stop such notifications.
    StopNotifying,
}

impl Operation {
    /// The scopes that the operation needs, all of them.
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

/// A set of scopes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// All scopes.
    pub const ALL: Self = Self(0b1111);

    /// Whether the set has this scope.
    pub fn has(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// The first scope that the operation needs and the set does not have.
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
