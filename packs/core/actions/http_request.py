#!/usr/bin/env python3
"""Sends one HTTP request. Standard library only."""

import json
import signal
import sys
import urllib.error
import urllib.request

# Keeps the whole answer below the largest result that is stored.
MAX_BODY = 512 * 1024


def opener():
    # Only HTTP: the default opener would read files and FTP as well, also
    # when a redirect points there.
    director = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        director.add_handler(handler)
    return director


def request(parameters):
    headers = dict(parameters.get("headers") or {})
    body = parameters.get("body")
    given = {name.lower() for name in headers}
    if body is not None and not isinstance(body, str):
        body = json.dumps(body)
        if "content-type" not in given:
            headers["Content-Type"] = "application/json"
    if parameters.get("auth_token") and "authorization" not in given:
        headers["Authorization"] = "Bearer " + parameters["auth_token"]
    prepared = urllib.request.Request(
        parameters["url"],
        data=None if body is None else body.encode(),
        method=parameters.get("method", "GET"),
    )
    for name, value in headers.items():
        if name.lower() in ("authorization", "cookie"):
            # Meant for this server, not for one that it redirects to.
            prepared.add_unredirected_header(name, value)
        else:
            prepared.add_header(name, value)
    return prepared


def describe(response):
    content = response.read(MAX_BODY + 1)
    charset = response.headers.get_content_charset() or "utf-8"
    try:
        text = content[:MAX_BODY].decode(charset, "replace")
    except LookupError:
        text = content[:MAX_BODY].decode("utf-8", "replace")
    headers = {}
    for name, value in response.headers.items():
        name = name.lower()
        headers[name] = headers[name] + ", " + value if name in headers else value
    answer = {"status_code": response.status, "headers": headers, "body": text}
    if len(content) > MAX_BODY:
        answer["truncated"] = True
    return answer


def give_up(_signal, _frame):
    raise TimeoutError("no complete answer in time")


def main():
    parameters = json.load(sys.stdin)
    timeout = parameters.get("timeout", 30)
    # A socket timeout restarts with every byte; this one is for the whole.
    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, timeout)
    try:
        try:
            response = opener().open(request(parameters), timeout=timeout)
        except urllib.error.HTTPError as refusal:
            response = refusal
        with response:
            answer = describe(response)
    except Exception as error:
        reason = getattr(error, "reason", None) or error
        answer = {"status_code": 0, "headers": {}, "body": "", "error": str(reason)}
    signal.setitimer(signal.ITIMER_REAL, 0)

    status = answer["status_code"]
    print(json.dumps(answer))
    if status == 0:
        print(f"no answer from {parameters['url']}: {answer['error']}", file=sys.stderr)
    elif status >= 300 and status != 304:
        # A redirect that gets here was one not to be followed.
        print(f"{parameters['url']} answered {status}", file=sys.stderr)
    else:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
