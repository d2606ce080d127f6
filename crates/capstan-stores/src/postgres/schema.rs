//! The tables and steps, as numbered files that each add to what the ones before have made.

use capstan_journal::{ErrorKind, JournalError, Secret};

use super::link::{Failure, Link};

/// What this build writes. A file more is a number more.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001_journal.sql")];
/// One process migrates at a time: a number of our own for PostgreSQL's advisory locks.
const LOCK: &str = "select pg_advisory_xact_lock(8206372187465)";

/// How far a database has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    /// The number of its last migration.
    pub version: u32,
    /// What a process must know to write to it.
    pub min_writer: u32,
}

impl Schema {
    /// What this build brings a database to.
    pub const NEWEST: u32 = MIGRATIONS.len() as u32;
}

/// Whether this build may write to the database; if it lacks tables that this build needs they are
/// made.
pub(super) async fn prepare(link: &Link) -> Result<Schema, JournalError> {
    let schema = match read(link).await.map_err(Failure::into_error)? {
        Some(schema) if schema.version >= Schema::NEWEST => schema,
        _ => migrate(link).await?,
    };
    check(schema)?;
    Ok(schema)
}

fn check(schema: Schema) -> Result<(), JournalError> {
    if schema.min_writer > Schema::NEWEST {
        let message = format!(
            "the journal's database has schema {} (table capstan.meta), which only builds that \
             know schema {} or later may use; this one knows {}. Nothing was changed; start a \
             later release of capstan",
            schema.version,
            schema.min_writer,
            Schema::NEWEST
        );
        return Err(JournalError::new(ErrorKind::Unsupported, message));
    }
    Ok(())
}

/// Brings a database to what this build knows; one that is further is left as it is.
pub(super) async fn migrate(link: &Link) -> Result<Schema, JournalError> {
    let secret = Secret::random().map_err(|error| {
        JournalError::new(ErrorKind::Unavailable, "the system has no random numbers")
            .caused_by(error)
    })?;
    let done = steps(link, &secret).await;
    if done.is_err() {
        let _ = link.batch("rollback").await;
    }
    done.map_err(|failure| {
        JournalError::new(
            ErrorKind::Unsupported,
            format!("the database cannot be prepared: {failure}"),
        )
    })
}

async fn steps(link: &Link, secret: &Secret) -> Result<Schema, Failure> {
    link.batch("begin").await?;
    link.batch(LOCK).await?;
    let schema = match read(link).await? {
        Some(schema) => schema,
        None => {
            // Who may not create it may have been given one.
            if link.query(HAS_SCHEMA, &[]).await?.is_empty() {
                link.batch("create schema capstan").await?;
            }
            Schema { version: 0, min_writer: 1 }
        }
    };
    for (migration, version) in MIGRATIONS.into_iter().zip(1_u32..) {
        if version > schema.version {
            link.batch(migration).await?;
        }
    }
    if schema.version == 0 {
        let numbers = [Schema::NEWEST as i32, schema.min_writer as i32];
        link.execute(FIRST, &[&numbers[0], &numbers[1], &&secret.as_bytes()[..]]).await?;
    } else {
        link.execute(NEXT, &[&(Schema::NEWEST as i32)]).await?;
    }
    link.batch("commit").await?;
    Ok(Schema { version: schema.version.max(Schema::NEWEST), ..schema })
}

/// By a look at the catalogue itself: a name that was looked up before stays unknown to a
/// connection (`to_regclass`) even if another has made the table since, and the lock was waited
/// for.
const HAS_META: &str = "select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on \
 n.oid = c.relnamespace \
    where n.nspname = 'capstan' and c.relname = 'meta'";
const HAS_SCHEMA: &str = "select 1 from pg_namespace where nspname = 'capstan'";
const FIRST: &str = "insert into capstan.meta (schema, min_writer, secret) values ($1, $2, $3)";
const NEXT: &str = "update capstan.meta set schema = greatest(schema, $1)";

/// How far the database has come; `None` if it holds no journal.
async fn read(link: &Link) -> Result<Option<Schema>, Failure> {
    if link.query(HAS_META, &[]).await?.is_empty() {
        return Ok(None);
    }
    let row = link.one("select schema, min_writer from capstan.meta", &[]).await?;
    let number = |at: usize| row.get::<_, i32>(at).try_into().unwrap_or(u32::MAX);
    Ok(Some(Schema { version: number(0), min_writer: number(1) }))
}
