#!/bin/sh
set -e
headers=""
while IFS= read -r line; do
    [ -z "$line" ] && continue
    key="${line%%=*}"
    value="${line#*=}"
    value="${value#\'}"
    value="${value%\'}"
    case "$key" in
    url) url="$value" ;;
    method) method="$value" ;;
    verify_ssl) verify="$value" ;;
    auth_token) token="$value" ;;
    headers.*) headers="$headers,\"${key#headers.}\":\"$value\"" ;;
    esac
done
echo "this line is for people, the last one is the answer"
printf '{"url":"%s","method":"%s","verify":%s,"token_length":%d,"headers":{%s}}\n' \
    "$url" "$method" "$verify" "${#token}" "${headers#,}"
