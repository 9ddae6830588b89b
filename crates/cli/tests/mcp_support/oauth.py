"""An MCP server of the test's that wants a token, and its authorization server, at one address. It says in `port` where it is,
and in `oauth` what it was asked. `wide` makes it want another scope for the tool `write`; `gone` voids every token."""
import base64
import hashlib
import json
import os
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CODES, TOKENS, RENEWALS = {}, {}, {}
LASTS = int(os.environ.get("LASTS", "3600"))


def note(line):
    with open("oauth", "a") as notes:
        notes.write(line + "\n")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, status, value=None, **headers):
        data = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, said in headers.items():
            self.send_header(name.replace("_", "-"), said)
        self.end_headers()
        self.wfile.write(data)

    def here(self):
        return "http://127.0.0.1:%d" % self.server.server_address[1]

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        asked = dict(urllib.parse.parse_qsl(url.query))
        if url.path == "/described":
            self.reply(200, {"resource": self.here() + "/mcp", "authorization_servers": [self.here()],
                             "scopes_supported": ["read", "write", "all"]})
        elif url.path == "/.well-known/oauth-authorization-server":
            self.reply(200, {"issuer": self.here(), "authorization_endpoint": self.here() + "/authorize",
                             "token_endpoint": self.here() + "/token", "registration_endpoint": self.here() + "/register",
                             "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"],
                             "token_endpoint_auth_methods_supported": ["client_secret_post"]})
        elif url.path == "/authorize":
            note("authorize %s %s" % (asked.get("scope"), asked.get("resource", "").endswith("/mcp")))
            code = "code-%d" % len(CODES)
            CODES[code] = asked
            back = {"state": asked["state"], "code": code}
            if os.path.exists("refuse"):
                back = {"state": asked["state"], "error": "access_denied", "error_description": "not today"}
            self.reply(302, location=asked["redirect_uri"] + "?" + urllib.parse.urlencode(back))
        else:
            self.reply(405 if url.path == "/mcp" else 404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        if self.path == "/register":
            self.reply(201, {**json.loads(body), "client_id": "us", "client_secret": "registered-secret-1"})
        elif self.path == "/token":
            self.token(dict(urllib.parse.parse_qsl(body.decode())))
        else:
            self.mcp(json.loads(body))

    def token(self, asked):
        note("token %s %s" % (asked["grant_type"], asked.get("resource", "").endswith("/mcp")))
        if (asked.get("client_id"), asked.get("client_secret")) != ("us", "registered-secret-1"):
            return self.reply(401, {"error": "invalid_client"})
        if asked["grant_type"] == "authorization_code":
            begun = CODES.pop(asked["code"])
            digest = hashlib.sha256(asked["code_verifier"].encode()).digest()
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != begun["code_challenge"]:
                return self.reply(400, {"error": "invalid_grant"})
            scope = begun.get("scope", "")
        else:
            scope = RENEWALS.pop(asked["refresh_token"], None)
            if scope is None:
                return self.reply(400, {"error": "invalid_grant"})
        number = len(TOKENS)
        TOKENS["access-token-%d" % number] = scope
        RENEWALS["renewal-token-%d" % number] = scope
        self.reply(200, {"access_token": "access-token-%d" % number, "token_type": "Bearer", "expires_in": LASTS,
                         "refresh_token": "renewal-token-%d" % number, "scope": scope})

    def mcp(self, message):
        said = self.headers.get("authorization", "")
        scope = TOKENS.get(said.removeprefix("Bearer "))
        described = 'resource_metadata="%s/described"' % self.here()
        if scope is None or os.path.exists("gone"):
            return self.reply(401, www_authenticate='Bearer scope="read", ' + described)
        method, wanted = message.get("method"), message.get("id")
        name = message.get("params", {}).get("name")
        if name == "write" and "write" not in scope.split():
            return self.reply(403, www_authenticate='Bearer error="insufficient_scope", scope="write", ' + described)
        if wanted is None:
            return self.reply(202)
        if method == "initialize":
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}},
                      "serverInfo": {"name": "oauth", "version": "1"}}
        elif method == "tools/list":
            shape = {"type": "object", "properties": {}}
            result = {"tools": [{"name": name, "inputSchema": shape, "description": name} for name in ("whoami", "write")]}
        else:
            note("called " + name)
            # what no server should do
            result = {"content": [{"type": "text", "text": "you are %s" % said}]}
        self.reply(200, {"jsonrpc": "2.0", "id": wanted, "result": result})

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open("port.new", "w") as port:
    port.write(str(server.server_address[1]))
os.rename("port.new", "port")
server.serve_forever()
