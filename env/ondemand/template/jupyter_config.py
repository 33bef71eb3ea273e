"""Settings of the session's Jupyter Server (2 or newer); Open OnDemand copies this file into the session's folder.

What a user set in ~/.jupyter is read before this; whatever guards the door is therefore set here, default or not.
"""

import os
from pathlib import Path

from jupyter_server.auth.login import LoginFormHandler

c = get_config()  # noqa: F821
host, port = os.environ["host"], int(os.environ["port"])  # noqa: SIM112 (so exports them the job script)
folder = Path.cwd()  # the working directory


class LoginFromPortal(LoginFormHandler):
    """Takes the password from the portal's page too, which cannot know this server's _xsrf cookie.

    Nothing is lost: who posts the right password may come in, and all other requests keep the check.
    """

    def check_xsrf_cookie(self):
        return None


# The portal forwards /node/<host>/<port>/ as it is, under its own host name or the node's, and says X-Forwarded-Proto.
c.ServerApp.ip = "*"  # which of the node's names and addresses the portal uses is the site's choice
c.ServerApp.port = port
c.ServerApp.port_retries = 0  # the portal knows only this one
c.ServerApp.base_url = f"/node/{host}/{port}/"
c.ServerApp.allow_remote_access = True
# The portal's name is not known here, so any origin may ask; the cookie below goes with no other site's requests.
c.ServerApp.allow_origin = "*"
c.ServerApp.trust_xheaders = True  # cookies of an https portal are marked secure
c.ServerApp.open_browser = False

c.PasswordIdentityProvider.hashed_password = Path(__file__).with_name("password_hash").read_text()
c.PasswordIdentityProvider.password_required = True
c.PasswordIdentityProvider.allow_password_change = False
c.IdentityProvider.token = ""  # no second way in; also not by JUPYTER_TOKEN
c.IdentityProvider.cookie_options = {"samesite": "Strict"}
c.IdentityProvider.login_handler_class = LoginFromPortal
c.ServerApp.disable_check_xsrf = False
c.ServerApp.allow_unauthenticated_access = False
c.ServerApp.allow_root = os.geteuid() == 0

c.ServerApp.root_dir = str(folder)
if (folder / "notebooks/00_start_here.ipynb").is_file():
    c.LabApp.default_url = "/lab/tree/notebooks/00_start_here.ipynb"
