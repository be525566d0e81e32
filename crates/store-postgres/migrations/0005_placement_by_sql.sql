-- Which workers the jobs want that programs store by SQL.

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
create or replace function outlast.problem(job jsonb) returns text
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

revoke execute on function outlast.enqueue(
    text, jsonb, text, integer, timestamptz, timestamptz, interval, interval, jsonb, text, jsonb,
    text[], uuid, text, boolean, jsonb, text, text) from public;

-- Roles that were granted the function without selectors get this one.
do $$
declare
    grantee text;
    how text;
begin
    for grantee, how in
        select coalesce(quote_ident(r.rolname), 'public'),
            case when a.is_grantable then ' with grant option' else '' end
        from pg_proc p cross join aclexplode(p.proacl) a left join pg_roles r on r.oid = a.grantee
        where p.pronamespace = 'outlast'::regnamespace and p.proname = 'enqueue'
            and p.pronargs = 16 and a.grantee <> p.proowner
    loop
        execute format('grant execute on function outlast.enqueue(
            text, jsonb, text, integer, timestamptz, timestamptz, interval, interval, jsonb, text,
            jsonb, text[], uuid, text, boolean, jsonb, text, text) to %s%s', grantee, how);
    end loop;
end $$;

drop function outlast.enqueue(
    text, jsonb, text, integer, timestamptz, timestamptz, interval, interval, jsonb, text, jsonb,
    text[], uuid, text, boolean, jsonb);
