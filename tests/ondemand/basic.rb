# The job script that Open OnDemand builds around an app's files with its batch-connect template `basic`: the helpers,
# variables and order of ood_core, in few lines.

# @param folder [String] the session's folder, absolute: with before.sh, script.sh, after.sh; the job works there
# @return [String] the script, without its first line (the shell)
def basic_script(folder)
  <<~BASH
    cd #{folder}

    export host
    export port

    create_yml () {
      echo "Generating connection YAML file..."
      (
        umask 077
        echo -e "host: $host\\nport: $port\\npassword: $password" > "#{folder}/connection.yml"
      )
    }

    clean_up () {
      echo "Cleaning up..."
      [[ ${SCRIPT_PID} ]] && pkill -P ${SCRIPT_PID} || :
      pkill -P $$
      exit ${1:-0}
    }

    source_helpers () {
      # [HOST:]PORT; 0: something listens there
      port_used () {
        local host=localhost
        [[ $1 == *:* ]] && host=${1%:*}
        (: < "/dev/tcp/$host/${1#*:}") > /dev/null 2>&1
      }
      export -f port_used

      # [HOST [MIN [MAX]]]
      find_port () {
        local candidate
        for candidate in $(shuf -i ${2:-2000}-${3:-65535}); do
          port_used "${1:-localhost}:$candidate" && continue
          echo "$candidate"
          return 0
        done
        return 1
      }
      export -f find_port

      # [LENGTH]
      create_passwd () (
        set +o pipefail
        tr -cd 'a-zA-Z0-9' < /dev/urandom 2> /dev/null | head -c${1:-8}
      )
      export -f create_passwd
    }
    export -f source_helpers
    source_helpers

    host=$(hostname)

    [[ -e "#{folder}/before.sh" ]] && source "#{folder}/before.sh"

    echo "Script starting..."
    "#{folder}/script.sh" &
    SCRIPT_PID=$!

    [[ -e "#{folder}/after.sh" ]] && source "#{folder}/after.sh"

    create_yml

    wait ${SCRIPT_PID} || clean_up 1
    clean_up
  BASH
end
