"""Signs each request of a JSON list as the vendor's own library does, at the time the request names."""
import datetime
import json
import sys
import urllib.parse
from unittest import mock

from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

signed = []
for case in json.load(sys.stdin):
    query = urllib.parse.urlencode([tuple(pair) for pair in case["query"]], quote_via=urllib.parse.quote, safe="-_.~")
    path = urllib.parse.quote("/" + case["key"], safe="/~")
    url = f"https://{case['host']}{path}" + (f"?{query}" if query else "")
    request = AWSRequest(method=case["method"], url=url, data=case["body"].encode(), headers=case["headers"])
    request.context["payload_signing_enabled"] = True
    keys = Credentials(case["access_key_id"], case["secret_access_key"], case.get("session_token"))
    now = datetime.datetime.strptime(case["time"], "%Y%m%dT%H%M%SZ")
    with mock.patch.object(auth, "get_current_datetime", return_value=now):
        auth.S3SigV4Auth(keys, "s3", case["region"]).add_auth(request)
    signed.append(request.headers["Authorization"])
print(json.dumps(signed))
