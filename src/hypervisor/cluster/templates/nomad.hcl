# One supervisor per client. Store the URL (without its password) and a file in the format of
# ~/.pgpass first:
#   nomad var put nomad/jobs/hypervisor url=postgresql://… pgpass=@FILE
job "hypervisor" {
  type = "system"

  group "host" {
    disconnect {
      lost_after = "1h"
      replace    = false
    }

    restart {
      attempts = 10
      interval = "10m"
      delay    = "5s"
      mode     = "delay"
    }

    task "supervisor" {
      driver       = "docker"
      kill_signal  = "SIGTERM"
      kill_timeout = "600s"

      config {
        image   = "@IMAGE@"
        command = "hv"
        args    = ["supervise"]
      }

      template {
        destination = "secrets/store.env"
        env         = true
        perms       = "600"
        data        = <<EOT
HYPERVISOR_STORE={{ with nomadVar "nomad/jobs/hypervisor" }}{{ .url }}{{ end }}
EOT
      }

      template {
        destination = "secrets/pgpass"
        perms       = "600"
        data        = <<EOT
{{ with nomadVar "nomad/jobs/hypervisor" }}{{ .pgpass }}{{ end }}
EOT
      }

      env {
        HV_LAUNCHER = "nomad"
        PGPASSFILE  = "${NOMAD_SECRETS_DIR}/pgpass"
      }

      resources {
        memory = @MEGABYTES@
      }
    }
  }
}
