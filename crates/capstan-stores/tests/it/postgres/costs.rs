//! The cost of a claim, as the server counts it.

use crate::postgres_server::Database;

/// The database pages that a claim of a new session reads.
fn pages_of_a_claim(database: &Database) -> u64 {
    const ME: &str = "00000000-0000-0000-0000-000000000001";
    let nothing = ["int", "bigint", "bigint", "bigint", "bigint", "bigint", "bigint", "bigint"];
    // The default limits of a gateway on runs and sessions.
    let limits = nothing.iter().enumerate().map(|(at, kind)| match at {
        1 | 3 | 4 => "array[10000]::bigint[]".to_owned(),
        _ => format!("array[null]::{kind}[]"),
    });
    let limits = limits.collect::<Vec<_>>().join(", ");
    let claim = format!(
        "select * from capstan.claim_runs('{ME}', array['t'], array[gen_random_uuid()::text], \
         array[gen_random_uuid()], \
         array[gen_random_uuid()::text], array[null]::uuid[], array['\\x00'::bytea], \
         array['{{}}'], array[0]::bigint[], \
         array[1]::bigint[], array[false], array[null]::text[], array['h'], array['r'], true, \
         {limits})"
    );
    let plan = database
        .sql(&format!("begin; {claim}; {claim}; explain (analyze, buffers) {claim}; rollback"));
    let line = plan
        .lines()
        .find(|line| line.contains("Buffers: shared"))
        .unwrap_or_else(|| panic!("{plan}"));
    line.split(['=', ' ']).filter_map(|word| word.parse::<u64>().ok()).sum()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL"]
async fn claim_cost_is_independent_of_session_count() {
    let database = Database::create();
    database.sql(
        "insert into capstan.replicas values ('00000000-0000-0000-0000-000000000001', 'n', null, \
         '1', now(), now(), 1)",
    );
    database.sql(
        "insert into capstan.writers values ('00000000-0000-0000-0000-000000000001', 1, false)",
    );
    database.sql("insert into capstan.tenants values ('t')");
    let few = pages_of_a_claim(&database);
    database.sql(
        "insert into capstan.sessions select 't', gen_random_uuid(), 1 from \
         generate_series(1, 20000)",
    );
    let many = pages_of_a_claim(&database);
    assert!(many < few + 30, "{few} pages, and {many} with 20,000 sessions");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL"]
async fn no_index_uses_an_sql_function() {
    let database = Database::create();
    let functions = "select distinct p.proname from pg_depend d \
        join pg_proc p on p.oid = d.refobjid join pg_language l on l.oid = p.prolang \
        join pg_index i on i.indexrelid = d.objid \
        where d.refclassid = 'pg_proc'::regclass and d.classid = 'pg_class'::regclass \
        and p.pronamespace = 'capstan'::regnamespace";
    assert_ne!(database.sql(functions), "", "some indices use our functions");
    assert_eq!(database.sql(&format!("{functions} and l.lanname = 'sql'")), "");
}
