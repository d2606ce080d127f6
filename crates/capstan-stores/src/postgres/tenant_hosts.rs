//! Maps each `no_store` tenant to the process that hosts it, and records which keys are in use.
//! Stores no content of these tenants.

use async_trait::async_trait;
use capstan_journal::{ErrorKind, JournalError, KeyRecord, Peer, Result, TenantHost, TenantHosts};
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::PostgresStore;
use super::connection::Failure;
use super::rows::{check_name, column, is_name};

const HOST_OF: &str = "select host, host_url, host_name from capstan.host_of($1, $2, $3)";
const RECORD_KEY: &str = "select outcome, holder from capstan.record_key($1, $2, $3, $4, $5)";
const RELEASE_KEY: &str =
    "delete from capstan.claims where tenant = $1 and key = $2 and stream = $3";

#[async_trait]
impl TenantHosts for PostgresStore {
    async fn host_of(&self, tenant: &str, may_host: bool) -> Result<TenantHost> {
        self.shared.check_open()?;
        check_name(tenant)?;
        let me = self.shared.me();
        let rows = self.rows(HOST_OF, &[&me, &tenant, &may_host]).await?;
        let read = |row: &tokio_postgres::Row| -> Result<TenantHost, Failure> {
            let id: Uuid = column(row, 0)?;
            if id == me {
                return Ok(TenantHost::Here);
            }
            let name = column::<Option<String>>(row, 2)?.unwrap_or_default();
            Ok(TenantHost::Elsewhere(Peer { id, name, url: column(row, 1)? }))
        };
        rows.first().map_or(Ok(TenantHost::Nowhere), read).map_err(Failure::into_error)
    }

    async fn record_key(
        &self,
        tenant: &str,
        key: &str,
        stream: Uuid,
        now: Timestamp,
    ) -> Result<KeyRecord> {
        self.shared.check_open()?;
        check_name(tenant)?;
        let me = self.shared.me();
        let rows = self.rows(RECORD_KEY, &[&me, &tenant, &key, &stream, &now.as_micros()]).await?;
        let row = rows
            .first()
            .ok_or_else(|| Failure::unexpected("record_key returned no row").into_error())?;
        match column::<i32>(row, 0).map_err(Failure::into_error)? {
            1 => Ok(KeyRecord::New),
            0 => Ok(KeyRecord::InUse(column(row, 1).map_err(Failure::into_error)?)),
            // The tenant has moved, or the lease has ended. A repeated request finds its host.
            _ => Err(JournalError::new(
                ErrorKind::Unavailable,
                "another process hosts the tenant now; send the request again",
            )),
        }
    }

    async fn release_key(&self, tenant: &str, key: &str, stream: Uuid) -> Result<()> {
        if is_name(tenant) {
            self.rows(RELEASE_KEY, &[&tenant, &key, &stream]).await?;
        }
        Ok(())
    }
}
