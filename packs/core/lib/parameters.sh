# Reads parameters that arrive on stdin as NAME='value' lines.
#
#   read_parameters message exit_code
#
# sets $parameter_message and $parameter_exit_code to their values, or to the
# empty string. Other names are ignored. No input is ever evaluated: the whole
# text is split at its quotes, so quotes, backslashes, dollars and newlines in
# a value come through as they were given. Needs nothing but a POSIX shell.

read_parameters() {
    for wanted in "$@"; do
        eval "parameter_$wanted="
    done
    newline='
'
    name= value= chunk= pieces=0 expect=name
    set -f
    saved_ifs=$IFS
    IFS="'"
    # A quote inside a value is written '\'' and so splits into a piece that
    # is a lone backslash, then an empty piece, then the rest of the value.
    for piece in $(cat); do
        case $expect in
        value)
            chunk=$chunk$piece
            pieces=$((pieces + 1))
            # Adding every piece to a long value would copy it every time.
            if [ "$pieces" -ge 500 ]; then
                value=$value$chunk chunk= pieces=0
            fi
            expect=name
            ;;
        reopened)
            expect=value
            ;;
        name)
            if [ "$piece" = '\' ]; then
                chunk="$chunk'"
                expect=reopened
            else
                keep_parameter "$@"
                name=${piece%=}
                name=${name#"$newline"}
                value= chunk= pieces=0
                expect=value
            fi
            ;;
        esac
    done
    keep_parameter "$@"
    IFS=$saved_ifs
    set +f
}

# Stores the value that was just read, if its name is among the wanted ones.
keep_parameter() {
    for wanted in "$@"; do
        if [ "$wanted" = "$name" ]; then
            eval "parameter_$wanted=\$value\$chunk"
        fi
    done
}
