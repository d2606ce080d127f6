//! The tables and functions of the journal, as numbered migrations.

use capstan_journal::{ErrorKind, JournalError, Secret};

use super::connection::{Connection, Failure};

/// The migrations. The number of a schema is the number of its last one.
const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001_journal.sql")];
/// Only one process migrates at a time. The number is our own advisory lock.
const LOCK: &str = "select pg_advisory_xact_lock(8206372187465)";

/// The schema of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    /// The number of its last migration.
    pub version: u32,
    /// The oldest schema that a build must know to write to the database.
    pub min_writer: u32,
}

impl Schema {
    /// The schema of this build.
    pub const NEWEST: u32 = MIGRATIONS.len() as u32;
}

/// Migrates the database if it is older than this build. Fails if this build may not write to it.
pub(super) async fn prepare(connection: &Connection) -> Result<Schema, JournalError> {
    let schema = match read(connection).await.map_err(Failure::into_error)? {
        Some(schema) if schema.version >= Schema::NEWEST => schema,
        _ => migrate(connection).await?,
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

/// Migrates a database to the schema of this build. Does nothing if it is newer.
pub(super) async fn migrate(connection: &Connection) -> Result<Schema, JournalError> {
    let secret = Secret::random().map_err(|error| {
        JournalError::new(ErrorKind::Unavailable, "the system has no random numbers")
            .caused_by(error)
    })?;
    let done = run_migrations(connection, &secret).await;
    if done.is_err() {
        let _ = connection.batch("rollback").await;
    }
    done.map_err(|failure| {
        JournalError::new(
            ErrorKind::Unsupported,
            format!("the journal's database cannot be migrated: {failure}"),
        )
    })
}

async fn run_migrations(connection: &Connection, secret: &Secret) -> Result<Schema, Failure> {
    connection.batch("begin").await?;
    connection.batch(LOCK).await?;
    let schema = match read(connection).await? {
        Some(schema) => schema,
        None => {
            // A user without permission to create a schema may have been given one.
            if connection.query(HAS_SCHEMA, &[]).await?.is_empty() {
                connection.batch("create schema capstan").await?;
            }
            Schema { version: 0, min_writer: 1 }
        }
    };
    for (migration, version) in MIGRATIONS.into_iter().zip(1_u32..) {
        if version > schema.version {
            connection.batch(migration).await?;
        }
    }
    if schema.version == 0 {
        let numbers = [Schema::NEWEST as i32, schema.min_writer as i32];
        connection.execute(FIRST, &[&numbers[0], &numbers[1], &&secret.as_bytes()[..]]).await?;
    } else {
        connection.execute(NEXT, &[&(Schema::NEWEST as i32)]).await?;
    }
    connection.batch("commit").await?;
    Ok(Schema { version: schema.version.max(Schema::NEWEST), ..schema })
}

/// Reads the catalogue. `to_regclass` would not do: a connection caches that a table does not
/// exist, even if another process creates it while this one waits for the lock.
const HAS_META: &str = "select 1 from pg_catalog.pg_class c \
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
    where n.nspname = 'capstan' and c.relname = 'meta'";
const HAS_SCHEMA: &str = "select 1 from pg_namespace where nspname = 'capstan'";
const FIRST: &str = "insert into capstan.meta (schema, min_writer, secret) values ($1, $2, $3)";
const NEXT: &str = "update capstan.meta set schema = greatest(schema, $1)";

/// The schema of the database; `None` if it has no journal.
async fn read(connection: &Connection) -> Result<Option<Schema>, Failure> {
    if connection.query(HAS_META, &[]).await?.is_empty() {
        return Ok(None);
    }
    let row = connection.one("select schema, min_writer from capstan.meta", &[]).await?;
    let number = |at: usize| row.get::<_, i32>(at).try_into().unwrap_or(u32::MAX);
    Ok(Some(Schema { version: number(0), min_writer: number(1) }))
}
