//! Where tenants live of whom nothing is stored, and which of their keys are taken. No word of
//! theirs is written.

use capstan_journal::{ErrorKind, Home, JournalError, Noted, Peer};
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::Shared;
use super::link::Failure;
use super::rows::{check_name, column, is_name};

const HOME: &str = "select home, home_url, home_name from capstan.home_1($1, $2, $3)";
const NOTE: &str = "select outcome, holder from capstan.note_1($1, $2, $3, $4, $5)";
const UNNOTE: &str = "delete from capstan.claims where tenant = $1 and key = $2 and stream = $3";

impl Shared {
    pub(super) async fn home(&self, tenant: &str, may_move_in: bool) -> Result<Home, JournalError> {
        self.check_open()?;
        check_name(tenant)?;
        let me = self.me();
        let rows = self.reads.query(HOME, &[&me, &tenant, &may_move_in]).await?;
        let read = |row: &tokio_postgres::Row| -> Result<Home, Failure> {
            let id: Uuid = column(row, 0)?;
            if id == me {
                return Ok(Home::Here);
            }
            let name = column::<Option<String>>(row, 2)?.unwrap_or_default();
            Ok(Home::Elsewhere(Peer { id, name, url: column(row, 1)? }))
        };
        rows.first().map_or(Ok(Home::Nowhere), read).map_err(Failure::into_error)
    }

    pub(super) async fn note(
        &self,
        tenant: &str,
        key: &str,
        stream: Uuid,
        now: Timestamp,
    ) -> Result<Noted, JournalError> {
        self.check_open()?;
        check_name(tenant)?;
        let rows =
            self.reads.query(NOTE, &[&self.me(), &tenant, &key, &stream, &now.as_micros()]).await?;
        let row = rows.first().ok_or_else(|| Failure::odd("a note has no outcome").into_error())?;
        match column::<i32>(row, 0).map_err(Failure::into_error)? {
            1 => Ok(Noted::New),
            0 => Ok(Noted::Taken(column(row, 1).map_err(Failure::into_error)?)),
            // It has moved since it was asked for, or the lease is over: whoever asks again finds
            // it.
            _ => Err(JournalError::new(
                ErrorKind::Unavailable,
                "the tenant lives in the memory of another process by now",
            )),
        }
    }

    pub(super) async fn unnote(
        &self,
        tenant: &str,
        key: &str,
        stream: Uuid,
    ) -> Result<(), JournalError> {
        if is_name(tenant) {
            self.reads.query(UNNOTE, &[&tenant, &key, &stream]).await?;
        }
        Ok(())
    }
}
