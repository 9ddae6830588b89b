"""An MCP server of the test's that wants a token, and its authorization server, at one address. It says in `port` where it is,
and in `oauth` what it was asked. `wide` makes it want another scope for the tool `write`; `gone` voids every token. With BOUND in
its environment its tokens are bound to a key (DPoP), with nonces that do not last; with SIGNED its client signs for itself with
the key in `key.pem`."""
import base64
import hashlib
import json
import os
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CODES, TOKENS, RENEWALS = {}, {}, {}
LASTS = int(os.environ.get("LASTS", "3600"))
BOUND, SIGNED = "BOUND" in os.environ, "SIGNED" in os.environ
# which key a token is bound to, what was said once, and how often the present nonce was
KEYS, SAID, USES = {}, set(), [0]
USES_MAX = 2

# the curve P-256
P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
G = (0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
     0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5)


def add(one, two):
    if one is None or two is None:
        return one or two
    if one[0] == two[0] and (one[1] + two[1]) % P == 0:
        return None
    if one == two:
        slope = (3 * one[0] * one[0] - 3) * pow(2 * one[1], -1, P)
    else:
        slope = (two[1] - one[1]) * pow(two[0] - one[0], -1, P)
    x = (slope * slope - one[0] - two[0]) % P
    return x, (slope * (one[0] - x) - one[1]) % P


def times(number, point):
    total = None
    while number:
        if number & 1:
            total = add(total, point)
        point, number = add(point, point), number >> 1
    return total


def plain(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def safe(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def opened(token, public=None):
    """Header and claims of a signed token whose signature holds: of the key it names, or of `public`."""
    signed, _, signature = token.rpartition(".")
    header, claims = (json.loads(plain(part)) for part in signed.split("."))
    assert header["alg"] == "ES256", header
    if public is None:
        assert set(header["jwk"]) == {"kty", "crv", "x", "y"}, "nothing private"
        public = tuple(int.from_bytes(plain(header["jwk"][axis]), "big") for axis in "xy")
    r, s = (int.from_bytes(plain(signature)[at:at + 32], "big") for at in (0, 32))
    digest, w = int.from_bytes(hashlib.sha256(signed.encode()).digest(), "big"), pow(s, -1, N)
    point = add(times(digest * w % N, G), times(r * w % N, public))
    assert point and point[0] % N == r, "the signature does not hold"
    assert claims["jti"] not in SAID, "said before"
    SAID.add(claims["jti"])
    return header, claims


def thumbprint(jwk):
    return safe(hashlib.sha256(json.dumps(jwk, sort_keys=True, separators=(",", ":")).encode()).digest())


SECRET = int.from_bytes(os.urandom(31), "big") + 1
PUBLIC = times(SECRET, G)
if SIGNED:
    point = b"".join(number.to_bytes(32, "big") for number in PUBLIC)
    der = bytes.fromhex("308187020100301306072a8648ce3d020106082a8648ce3d030107046d306b0201010420")
    der += SECRET.to_bytes(32, "big") + bytes.fromhex("a14403420004") + point
    with open("key.pem", "w") as pem:
        pem.write("-----BEGIN PRIVATE KEY-----\n%s-----END PRIVATE KEY-----\n" % base64.encodebytes(der).decode())


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
            methods = ["private_key_jwt"] if SIGNED else ["client_secret_post"]
            self.reply(200, {"issuer": self.here(), "authorization_endpoint": self.here() + "/authorize",
                             "token_endpoint": self.here() + "/token", "registration_endpoint": self.here() + "/register",
                             "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"],
                             "token_endpoint_auth_methods_supported": methods,
                             # what it could do says nothing of what the server wants
                             "dpop_signing_alg_values_supported": ["ES256"]})
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
            self.mcp(body)

    def proven(self, nonce, token=None):
        """The key that a proof is of. None: there is no proof for this request, or one without the nonce."""
        header, claims = opened(self.headers["dpop"])
        assert header["typ"] == "dpop+jwt" and claims["htm"] == "POST" and claims["htu"] == self.here() + self.path, claims
        assert claims.get("ath") == (token and safe(hashlib.sha256(token.encode()).digest())), claims
        return thumbprint(header["jwk"]) if claims.get("nonce") == nonce else None

    def token(self, asked):
        note("token %s %s" % (asked["grant_type"], asked.get("resource", "").endswith("/mcp")))
        if BOUND and "dpop" not in self.headers:
            return self.reply(400, {"error": "invalid_dpop_proof"})
        key = self.proven("nonce-of-tokens") if BOUND else None
        if BOUND and key is None:
            return self.reply(400, {"error": "use_dpop_nonce"}, dpop_nonce="nonce-of-tokens")
        if SIGNED:
            _, claims = opened(asked["client_assertion"], PUBLIC)
            assert (claims["iss"], claims["sub"], claims["aud"]) == ("signer", "signer", self.here()), claims
            note("signed " + asked["client_assertion_type"])
        elif (asked.get("client_id"), asked.get("client_secret")) != ("us", "registered-secret-1"):
            return self.reply(401, {"error": "invalid_client"})
        if asked["grant_type"] == "client_credentials":
            scope = asked.get("scope", "")
        elif asked["grant_type"] == "authorization_code":
            begun = CODES.pop(asked["code"])
            digest = hashlib.sha256(asked["code_verifier"].encode()).digest()
            if safe(digest) != begun["code_challenge"] or begun.get("dpop_jkt") != key:
                return self.reply(400, {"error": "invalid_grant"})
            scope = begun.get("scope", "")
        else:
            scope = RENEWALS.pop(asked["refresh_token"], None)
            if scope is None:
                return self.reply(400, {"error": "invalid_grant"})
        number = len(TOKENS)
        TOKENS["access-token-%d" % number] = scope
        RENEWALS["renewal-token-%d" % number] = scope
        KEYS["access-token-%d" % number] = key
        self.reply(200, {"access_token": "access-token-%d" % number, "token_type": "DPoP" if BOUND else "Bearer", "expires_in": LASTS,
                         "refresh_token": "renewal-token-%d" % number, "scope": scope})

    def mcp(self, body):
        said = self.headers.get("authorization", "")
        scheme = "DPoP" if BOUND else "Bearer"
        token = said.removeprefix(scheme + " ")
        scope = TOKENS.get(token)
        described = 'resource_metadata="%s/described"' % self.here()
        if scope is None or os.path.exists("gone"):
            return self.reply(401, www_authenticate='%s scope="read", %s' % (scheme, described))
        if BOUND:
            nonce = "nonce-%d" % (USES[0] // USES_MAX)
            key = self.proven(nonce, token)
            if key is None:
                note("another nonce")
                return self.reply(401, www_authenticate='DPoP error="use_dpop_nonce"', dpop_nonce=nonce)
            assert key == KEYS[token], "another key"
            USES[0] += 1
        message = json.loads(body)
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
