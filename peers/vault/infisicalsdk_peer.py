"""Drives an Infisical with the vendor's own Python SDK: infisicalsdk_peer.py ADDRESS CLIENT_ID CLIENT_SECRET

Prints a line for every check that holds, and ends with an error at the first that does not.
"""

import sys
import warnings

import requests
from infisical_sdk import InfisicalSDKClient
from infisical_sdk.infisical_requests import APIError

# The certificate is the server's own, and the SDK has no word for that.
warnings.filterwarnings("ignore")
ask = requests.Session.request
requests.Session.request = lambda self, *args, **words: ask(self, *args, **{**words, "verify": False})

address, client_id, client_secret = sys.argv[1:]
AT = {"project_slug": "tazlab", "environment_slug": "dev", "secret_path": "/"}
checks = 0


def holds(what, is_so):
    global checks
    if not is_so:
        sys.exit(f"does not hold: {what}")
    checks += 1
    print("ok ", what)


def refused(what, status, call):
    try:
        call()
    except APIError as error:
        holds(f"{what} is refused with {status}", error.status_code == status)
    else:
        sys.exit(f"not refused: {what}")


def client():
    return InfisicalSDKClient(host=address, cache_ttl=None)


vault = client()
login = vault.auth.universal_auth.login(client_id=client_id, client_secret=client_secret)
holds("a login gives a bearer token for thirty days", login.tokenType == "Bearer" and login.expiresIn == 2592000)

listed = vault.secrets.list_secrets(**AT)
values = {secret.secretKey: secret.secretValue for secret in listed.secrets}
holds("references are expanded unless told otherwise", values == {"HOST": "db.example.net", "URL": "https://db.example.net"})
holds("imports come with a list", [each["secretKey"] for part in listed.imports for each in part.secrets] == ["FAR"])
project = listed.secrets[0].workspace

raw = vault.secrets.list_secrets(**AT, expand_secret_references=False, include_imports=False)
values = {secret.secretKey: secret.secretValue for secret in raw.secrets}
holds("references stay as they are where asked", values["URL"] == "https://${HOST}" and not raw.imports)
one = vault.secrets.get_secret_by_name(secret_name="URL", **AT, expand_secret_references=False)
holds("one secret is read by its name", one.secretValue == "https://${HOST}" and one.secretValueHidden is False)

made = vault.secrets.create_secret_by_name(secret_name="NEW", secret_value="  x\n\n", secret_comment="c", **AT)
holds("values are trimmed, and keep one newline", made.secretValue == "x\n" and made.version == 1)
changed = vault.secrets.update_secret_by_name(current_secret_name="NEW", secret_value="y", **AT)
holds("a change counts the version up", changed.secretValue == "y" and changed.version == 2)
holds("a secret is deleted by its name", vault.secrets.delete_secret_by_name(secret_name="NEW", **AT).secretKey == "NEW")

refused("a secret that is gone", 404, lambda: vault.secrets.get_secret_by_name(secret_name="NEW", **AT))
refused(
    "a secret that is there already",
    400,
    lambda: vault.secrets.create_secret_by_name(secret_name="HOST", secret_value="z", **AT),
)
refused("a folder that is not there", 404, lambda: vault.secrets.list_secrets(**{**AT, "secret_path": "/nowhere"}))

where = {"environment_slug": "dev", "project_id": project}
folder = vault.folders.create_folder(name="c", path="/a/b", **where)
holds("a folder is made with those above it", folder.path == "/a/b/c")
refused("a folder that is there already", 400, lambda: vault.folders.create_folder(name="c", path="/a/b", **where))
names = [each.name for each in vault.folders.list_folders(path="/", **where).folders]
holds("folders are listed", names == ["a"])
vault.folders.delete_folder(folder_id_or_name="c", path="/a/b", **where)

refused(
    "a login with a wrong secret",
    401,
    lambda: client().auth.universal_auth.login(client_id=client_id, client_secret="wrong"),
)
print(f"{checks} checks hold")
