"""Settings of the session's Jupyter Server (2 or newer); Open OnDemand copies this file into the session's folder.

Jupyter reads ~/.jupyter before this file, so every setting of security is set here, even to its default.
"""

import os
from pathlib import Path

from jupyter_server.auth.login import LoginFormHandler

c = get_config()  # noqa: F821
host, port = os.environ["host"], int(os.environ["port"])  # noqa: SIM112 (so exports them the job script)
folder = Path.cwd()  # the working directory


class LoginFromPortal(LoginFormHandler):
    """Accepts the password from the portal's page, which cannot know this server's _xsrf cookie.

    All other requests keep the check.
    """

    def check_xsrf_cookie(self):
        return None


# The portal forwards /node/<host>/<port>/ unchanged, under its own host name or the node's, with X-Forwarded-Proto.
c.ServerApp.ip = "*"  # the site chooses the name or address of the node that the portal uses
c.ServerApp.port = port
c.ServerApp.port_retries = 0  # the portal knows only this port
c.ServerApp.base_url = f"/node/{host}/{port}/"
c.ServerApp.allow_remote_access = True
# The portal's name is unknown here, so any origin is accepted; requests from other domains do not carry the cookie below.
c.ServerApp.allow_origin = "*"
c.ServerApp.trust_xheaders = True  # cookies of an https portal are marked secure
c.ServerApp.open_browser = False

c.PasswordIdentityProvider.hashed_password = Path(__file__).with_name("password_hash").read_text()
c.PasswordIdentityProvider.password_required = True
c.PasswordIdentityProvider.allow_password_change = False
c.IdentityProvider.token = ""  # no login by token, also not by JUPYTER_TOKEN
c.IdentityProvider.cookie_options = {"samesite": "Strict"}
c.IdentityProvider.login_handler_class = LoginFromPortal
c.ServerApp.disable_check_xsrf = False
c.ServerApp.allow_unauthenticated_access = False
c.ServerApp.allow_root = os.geteuid() == 0

c.ServerApp.root_dir = str(folder)
if (folder / "notebooks/00_start_here.ipynb").is_file():
    c.LabApp.default_url = "/lab/tree/notebooks/00_start_here.ipynb"
