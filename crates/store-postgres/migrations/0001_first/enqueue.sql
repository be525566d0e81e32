-- Jobs that programs stored by SQL in their own transactions, until a server enqueues them. A row
-- is the job as its program wrote it.
create table arrival (
    n bigint generated always as identity primary key,
    id uuid not null,
    tenant text,
    envelope text not null,
    wake boolean not null,
    constraint arrival_id unique (id)
) with (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2
);

-- Until when a server polls for arrivals, in milliseconds since 1970. Until then nobody needs to
-- notify it.
create table arrival_watch (
    id integer primary key check (id = 1),
    until bigint not null
) with (fillfactor = 50);
insert into arrival_watch values (1, 0);

-- Error codes: OL001 is internal to the server, OL002 an invalid job, OL003 a job id that is taken.

-- A new UUIDv7: the time in milliseconds, then random bits.
create function outlast.new_id() returns uuid
language sql volatile parallel safe as $$
    select encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
        from 1 for 6), 52, 1), 53, 1), 'hex')::uuid
$$;

-- The value of a field of a job: from its options, else from its root. JSON null counts as absent.
create function outlast.wish(job jsonb, name text) returns jsonb
language sql immutable parallel safe as $$
    select coalesce(nullif(job -> 'options' -> name, 'null'), nullif(job -> name, 'null'))
$$;

create function outlast.is_id(given jsonb) returns boolean
language sql immutable parallel safe as $$
    select jsonb_typeof(given) = 'string' and given #>> '{}'
        ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$'
$$;

create function outlast.is_whole(given jsonb) returns boolean
language sql immutable parallel safe as $$
    select jsonb_typeof(given) = 'number' and given #>> '{}' ~ '^[0-9]{1,18}$'
$$;

-- The longest length, in milliseconds: a hundred years.
create function outlast.longest() returns bigint
language sql immutable parallel safe as $$ select 3162240000000 $$;

-- A length in milliseconds: ISO 8601 without years and months, or seconds, or a number with a unit.
-- Null if it is none of these.
create function outlast.length(words text) returns numeric
language sql immutable parallel safe as $$
    select case
        when words ~ '^[0-9]+ms$' then rtrim(words, 'ms')::numeric
        when words ~ '^[0-9]+([.,][0-9]+)?[smhd]?$' then
            replace(rtrim(words, 'smhd'), ',', '.')::numeric * case right(words, 1)
                when 'm' then 60000 when 'h' then 3600000 when 'd' then 86400000 else 1000 end
        when words ~ '[WDHMS]$'
            and words ~ ('^P([0-9]+([.,][0-9]+)?W)?([0-9]+([.,][0-9]+)?D)?'
                || '(T([0-9]+([.,][0-9]+)?H)?([0-9]+([.,][0-9]+)?M)?([0-9]+([.,][0-9]+)?S)?)?$')
        then (
            select sum(replace(part[1], ',', '.')::numeric * case part[2]
                when 'W' then 604800000 when 'D' then 86400000 when 'H' then 3600000
                when 'M' then 60000 else 1000 end)
            from regexp_matches(words, '([0-9.,]+)([WDHMS])', 'g') part)
        end
$$;

create function outlast.is_length(given jsonb) returns boolean
language sql immutable parallel safe as $$
    select coalesce(case
        when jsonb_typeof(given) in ('number', 'string')
            then floor(outlast.length(given #>> '{}')) <= outlast.longest()
        end, false)
$$;

-- A time: RFC 3339 with an offset, or `+` and a length.
create function outlast.is_time(given jsonb) returns boolean
language plpgsql stable parallel safe as $$
declare
    words text := given #>> '{}';
begin
    if jsonb_typeof(given) <> 'string' then
        return false;
    end if;
    if words like '+P%' then
        return outlast.is_length(to_jsonb(substring(words from 2)));
    end if;
    if words !~ ('^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?'
            || '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$') then
        return false;
    end if;
    perform words::timestamptz;
    return true;
exception when data_exception then
    return false;
end $$;

-- Returns what is wrong with a retry policy, or null.
create function outlast.retry_problem(retry jsonb) returns text
language plpgsql immutable parallel safe as $$
declare
    name text;
    given jsonb;
begin
    if jsonb_typeof(retry) <> 'object' then
        return 'field `retry` must be an object';
    end if;
    for name, given in select key, value from jsonb_each(retry) where value <> 'null' loop
        case name
        when 'max_attempts' then
            if not outlast.is_whole(given) or (given #>> '{}')::bigint > 10000 then
                return 'field `retry.max_attempts` must be a whole number from 0 to 10000';
            end if;
        when 'initial_interval_ms', 'max_interval_ms' then
            if not outlast.is_whole(given) then
                return format('field `retry.%s` must be a whole number of milliseconds', name);
            end if;
        when 'initial_interval', 'max_interval' then
            if not outlast.is_length(given)
                    and nullif(retry -> (name || '_ms'), 'null') is null then
                return format('field `retry.%s` must be an ISO 8601 duration such as `PT1S`',
                    name);
            end if;
        when 'backoff_coefficient' then
            if jsonb_typeof(given) <> 'number' or (given #>> '{}')::numeric not between 1 and 1000
            then
                return 'field `retry.backoff_coefficient` must be a number from 1 to 1000';
            end if;
        when 'backoff_strategy', 'backoff_type' then
            if given not in ('"constant"', '"none"', '"linear"', '"exponential"', '"polynomial"') then
                return format('field `retry.%s` must be `constant`, `linear`, `exponential` or `polynomial`',
                    name);
            end if;
        when 'jitter' then
            if jsonb_typeof(given) <> 'boolean' then
                return 'field `retry.jitter` must be true or false';
            end if;
        when 'non_retryable_errors' then
            if jsonb_typeof(given) <> 'array' or jsonb_array_length(given) > 100
                or jsonb_path_exists(given, 'strict $[*] ? (@.type() <> "string")')
            then
                return 'field `retry.non_retryable_errors` must be an array of at most 100 texts';
            end if;
        when 'on_exhaustion' then
            if given not in ('"discard"', '"dead_letter"') then
                return 'field `retry.on_exhaustion` must be `discard` or `dead_letter`';
            end if;
        else null;
        end case;
    end loop;
    return null;
end $$;

-- Returns what is wrong with the times and lengths of a job, or null.
create function outlast.time_problem(job jsonb) returns text
language plpgsql stable parallel safe as $$
declare
    name text;
    given jsonb;
begin
    foreach name in array array['timeout_ms', 'visibility_timeout_ms', 'delay_ms'] loop
        given := outlast.wish(job, name);
        if given is null then
            continue;
        elsif jsonb_typeof(given) <> 'number' or given #>> '{}' !~ '^[0-9]+$'
            or (given #>> '{}')::numeric not between 1 and 9223372036854775807
        then
            return format('field `%s` must be a whole number of milliseconds above 0', name);
        elsif (given #>> '{}')::numeric > outlast.longest() then
            return format('field `%s` must be at most %s milliseconds, a hundred years', name,
                outlast.longest());
        end if;
    end loop;
    foreach name in array array['timeout', 'visibility_timeout', 'delay'] loop
        given := outlast.wish(job, name);
        if given is not null and outlast.wish(job, name || '_ms') is null
            and (not outlast.is_length(given) or given #>> '{}' !~ '[1-9]')
        then
            return format('field `%s` must be a duration such as `PT30S`', name);
        end if;
    end loop;
    foreach name in array array['scheduled_at', 'delay_until', 'expires_at'] loop
        given := outlast.wish(job, name);
        if given is not null and not outlast.is_time(given) then
            return format('field `%s` must be a time such as `2030-01-31T12:00:00Z`, '
                || 'or relative such as `+PT30S`', name);
        end if;
    end loop;
    given := outlast.wish(job, 'expires_at');
    if given #>> '{}' like '+%' then
        return null;
    elsif (given #>> '{}')::timestamptz <= clock_timestamp() then
        return 'field `expires_at` must be a time to come: the job has already expired';
    end if;
    return null;
end $$;

-- Returns what is wrong with the keys of a job, or null.
create function outlast.keys_problem(keys jsonb) returns text
language plpgsql immutable parallel safe as $$
declare
    expected constant text :=
        'field `keys` must be an object of texts such as `{"tenant": "42"}`';
    many integer;
    name text;
    given text;
begin
    if keys is null then
        return null;
    elsif jsonb_typeof(keys) <> 'object' then
        return expected;
    elsif exists (
        select 1 from jsonb_each(keys) e
        where jsonb_typeof(e.value) not in ('string', 'number', 'boolean'))
    then
        return expected;
    end if;
    many := (select count(*) from jsonb_object_keys(keys));
    if many > 4 then
        return format('field `keys` holds %s keys; at most 4 are taken', many);
    end if;
    for name, given in select key, value from jsonb_each_text(keys) order by key collate "C" loop
        if name !~ '^[a-z0-9_.-]{1,64}$' then
            return format('field `keys` names a key `%s`; a name has 1 to 64 characters '
                || 'out of a-z, 0-9, `_`, `.` and `-`', name);
        elsif octet_length(given) > 256 then
            return format('field `keys` has a value for `%s` of %s bytes; at most 256 are taken',
                name, octet_length(given));
        end if;
    end loop;
    return null;
end $$;

-- Returns what is wrong with a selector of labels, or null.
create function outlast.selector_problem(field text, given jsonb) returns text
language plpgsql immutable parallel safe as $$
declare
    word constant text := '[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?';
    label constant text := format('(?:[A-Za-z0-9.-]{1,253}/)?%s', word);
    value constant text := format('(?:%s)?', word);
    requirement constant text := format(
        '(?:!\s*%1$s|%1$s\s*(?:==|=|!=)\s*%2$s|%1$s\s+(?:in|notin)\s*[(]\s*%2$s(?:\s*,\s*%2$s)*\s*[)]|%1$s)',
        label, value);
    example constant text := '`gpu=true, zone in (a, b), !spot`';
begin
    if given is null then
        return null;
    elsif jsonb_typeof(given) <> 'string' then
        return format('field `%s` must be a text such as %s', field, example);
    elsif octet_length(given #>> '{}') > 1024 then
        return format('field `%s` is no selector: it has more than 1024 bytes', field);
    elsif given #>> '{}' !~ format('^\s*(?:%1$s(?:\s*,\s*%1$s)*)?\s*$', requirement) then
        return format('field `%s` is no selector; one looks like %s', field, example);
    end if;
    return null;
end $$;

-- Returns what is wrong with a job by the rules of POST /ojs/v1/jobs, or null.
create function outlast.problem(job jsonb) returns text
language plpgsql stable parallel safe as $$
declare
    given jsonb;
    bytes integer;
begin
    if job is null or jsonb_typeof(job) <> 'object' then
        return 'a job must be an object';
    end if;
    bytes := octet_length(job::text);
    if bytes > 1048576 then
        return format('the job is %s bytes long; at most 1048576 are taken', bytes);
    end if;
    if bytes > 128 and jsonb_path_exists(job,
        'strict $.**{64} ? (@.type() == "object" || @.type() == "array")')
    then
        return 'the job is nested more than 64 levels deep';
    end if;
    given := nullif(job -> 'type', 'null');
    if given is null then
        return 'field `type` is missing';
    elsif jsonb_typeof(given) <> 'string' then
        return 'field `type` must be a text';
    elsif octet_length(given #>> '{}') > 255 or given #>> '{}' !~ '^[a-z][a-z0-9_-]*([.][a-z0-9][a-z0-9_-]*)*$'
    then
        return 'field `type` must be lower-case words joined by dots, such as `email.send`';
    end if;
    given := nullif(job -> 'args', 'null');
    if given is null then
        return 'field `args` is missing';
    elsif jsonb_typeof(given) <> 'array' then
        return 'field `args` must be an array';
    end if;
    if jsonb_typeof(nullif(job -> 'meta', 'null')) <> 'object' then
        return 'field `meta` must be an object';
    end if;
    if not outlast.is_id(nullif(job -> 'id', 'null')) then
        return 'field `id` must be a UUIDv7 in lower case';
    end if;
    if jsonb_typeof(nullif(job -> 'options', 'null')) <> 'object' then
        return 'field `options` must be an object';
    end if;
    if outlast.wish(job, 'rate_limit') is not null then
        return 'field `rate_limit` is not supported by this server';
    end if;
    if outlast.wish(job, 'unique') is not null then
        return 'field `unique` is not supported for jobs that are stored by SQL';
    end if;
    given := outlast.wish(job, 'queue');
    if jsonb_typeof(given) <> 'string' then
        return 'field `queue` must be a text';
    elsif octet_length(given #>> '{}') > 255 or given #>> '{}' !~ '^[a-z0-9][a-z0-9._-]*$' then
        return 'field `queue` must be lower-case letters, digits, `-`, `_` and `.`, '
            || 'starting with a letter or digit';
    end if;
    given := outlast.wish(job, 'priority');
    if jsonb_typeof(given) <> 'number' or given #>> '{}' !~ '^-?[0-9]{1,3}$'
        or (given #>> '{}')::integer not between -100 and 100
    then
        return 'field `priority` must be a whole number from -100 to 100';
    end if;
    if outlast.wish(job, 'overlap') not in ('"allowed"', '"forbidden"') then
        return 'field `overlap` must be `allowed` or `forbidden`';
    end if;
    if jsonb_typeof(outlast.wish(job, 'pending')) <> 'boolean' then
        return 'field `pending` must be true or false';
    end if;
    given := outlast.wish(job, 'retry');
    return coalesce(outlast.time_problem(job), outlast.keys_problem(outlast.wish(job, 'keys')),
        outlast.selector_problem('requires', outlast.wish(job, 'requires')),
        outlast.selector_problem('prefers', outlast.wish(job, 'prefers')),
        case when outlast.wish(job, 'pending') = 'true' and coalesce(
            outlast.wish(job, 'scheduled_at'), outlast.wish(job, 'delay_until'),
            outlast.wish(job, 'delay_ms'), outlast.wish(job, 'delay')) is not null
        then
            'field `pending` must be left out of a job with a time: it runs once it is activated'
        end,
        case when given is not null then outlast.retry_problem(given) end);
end $$;

-- Notifies the servers just before the program's commit. PostgreSQL serializes the commits of
-- transactions that notify, so this is skipped while a server polls anyway, with some time to spare
-- for the commit itself.
create function outlast.wake() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    if not exists (
        select 1 from outlast.arrival_watch w
        where w.id = 1 and w.until > extract(epoch from clock_timestamp()) * 1000 + 200)
    then
        perform pg_notify('outlast', '{"say":["a"]}');
    end if;
    return null;
end $$;

create constraint trigger arrival_wake after insert on arrival
    deferrable initially deferred for each row when (new.wake) execute function outlast.wake();

-- A time in the format of a job.
create function outlast.time_text(name text, at timestamptz) returns text
language plpgsql stable as $$
begin
    if at < '0001-01-01 00:00Z' or at >= '10000-01-01 00:00Z' then
        raise exception 'field `%` must be a time of the years 1 to 9999', name
            using errcode = 'OL002';
    end if;
    return to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
end $$;

-- Returns what is wrong with a tenant, or null.
create function outlast.tenant_problem(tenant text) returns text
language sql immutable parallel safe as $$
    select case when tenant !~ '^[ -~]{1,255}$'
        then 'field `tenant` must be 1 to 255 printable characters' end
$$;

-- Stores a job in the caller's transaction and returns its id. The job exists if and only if the
-- transaction commits. Servers are notified at once then, unless `wake` is false.
create function outlast.enqueue(
    type text,
    args jsonb default '[]',
    queue text default null,
    priority integer default null,
    scheduled_at timestamptz default null,
    expires_at timestamptz default null,
    timeout interval default null,
    visibility_timeout interval default null,
    retry jsonb default null,
    overlap text default null,
    meta jsonb default null,
    tags text[] default null,
    id uuid default null,
    tenant text default null,
    wake boolean default true,
    keys jsonb default null,
    requires text default null,
    prefers text default null
) returns uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    new_id constant uuid := coalesce(enqueue.id, outlast.new_id());
    -- A key that is null is refused, and not left out: its job would escape its limits.
    options constant jsonb := jsonb_strip_nulls(jsonb_build_object(
        'queue', queue,
        'priority', priority,
        'scheduled_at', outlast.time_text('scheduled_at', scheduled_at),
        'expires_at', outlast.time_text('expires_at', expires_at),
        'timeout_ms', (extract(epoch from timeout) * 1000)::bigint,
        'visibility_timeout_ms', (extract(epoch from visibility_timeout) * 1000)::bigint,
        'retry', retry,
        'overlap', overlap,
        'tags', tags,
        'requires', requires,
        'prefers', prefers
    )) || case when keys is null then '{}'::jsonb else jsonb_build_object('keys', keys) end;
    job constant jsonb := jsonb_strip_nulls(jsonb_build_object(
            'type', enqueue.type,
            'id', new_id))
        || case when options = '{}' then '{}'::jsonb
            else jsonb_build_object('options', options) end
        || jsonb_build_object('args', args)
        || case when meta is null then '{}'::jsonb else jsonb_build_object('meta', meta) end;
    wrong constant text := coalesce(outlast.problem(job), outlast.tenant_problem(tenant));
begin
    if wrong is not null then
        raise exception '%', wrong using errcode = 'OL002';
    end if;
    if not exists (select 1 from outlast.job_row j where j.id = new_id) then
        insert into outlast.arrival (id, tenant, envelope, wake)
        values (new_id, enqueue.tenant, job::text, enqueue.wake)
        on conflict on constraint arrival_id do nothing;
    end if;
    if not found then
        raise exception 'job % already exists', new_id using errcode = 'OL003';
    end if;
    return new_id;
end $$;

-- Stores several jobs in the caller's transaction and returns their ids in order. Each job is an
-- object as accepted by POST /ojs/v1/jobs.
create function outlast.enqueue_all(
    jobs jsonb,
    tenant text default null,
    wake boolean default true
) returns setof uuid
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    many integer;
    stored integer;
    at bigint;
    wrong text;
    ids uuid[];
    taken uuid;
begin
    if jobs is null or jsonb_typeof(jobs) <> 'array' then
        raise exception 'field `jobs` must be an array of jobs' using errcode = 'OL002';
    end if;
    many := jsonb_array_length(jobs);
    if many = 0 then
        raise exception 'field `jobs` must hold at least one job' using errcode = 'OL002';
    elsif many > 10000 then
        raise exception 'field `jobs` holds % jobs; at most 10000 are taken', many
            using errcode = 'OL002';
    end if;
    select e.n - 1, p.wrong into at, wrong
        from jsonb_array_elements(jobs) with ordinality e(job, n)
        cross join lateral (select outlast.problem(e.job) as wrong) p
        where p.wrong is not null order by e.n limit 1;
    if wrong is not null then
        raise exception 'jobs[%]: %', at, wrong using errcode = 'OL002';
    end if;
    wrong := outlast.tenant_problem(tenant);
    if wrong is not null then
        raise exception '%', wrong using errcode = 'OL002';
    end if;
    ids := array(
        select coalesce((nullif(e.job -> 'id', 'null') #>> '{}')::uuid, outlast.new_id())
        from jsonb_array_elements(jobs) with ordinality e(job, n) order by e.n);
    with put as (
        insert into outlast.arrival (id, tenant, envelope, wake)
        select ids[e.n], enqueue_all.tenant, (e.job || jsonb_build_object('id', ids[e.n]))::text,
            enqueue_all.wake and e.n = 1
        from jsonb_array_elements(jobs) with ordinality e(job, n)
        where not exists (select 1 from outlast.job_row j where j.id = ids[e.n])
        order by e.n
        on conflict on constraint arrival_id do nothing returning 1)
    select count(*) into stored from put;
    if stored <> many then
        -- A job that is known already, or that is given twice.
        select u.id into taken from unnest(ids) with ordinality u(id, n)
            where exists (select 1 from outlast.job_row j where j.id = u.id)
                or exists (select 1 from unnest(ids) with ordinality v(id, n)
                           where v.id = u.id and v.n < u.n)
            order by u.n limit 1;
        raise exception 'job % already exists', coalesce(taken, ids[1]) using errcode = 'OL003';
    end if;
    return query select unnest(ids);
end $$;

-- Roles that may store jobs are granted this explicitly.
revoke execute on function outlast.enqueue from public;
revoke execute on function outlast.enqueue_all from public;
