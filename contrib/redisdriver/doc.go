// Package redisdriver stores locks in Redis 7 or later, or in Valkey. Import it
// for its side effect and open a client by its name:
//
//	import _ "github.com/dlock-go/dlock/contrib/redisdriver"
//
//	client, err := dlock.Open("redis", "redis://localhost:6379?session_timeout=10s")
//
// A program that has a go-redis client already uses [NewConnector] with
// dlock.NewClient.
//
// docs/stores/redis.md says what those who run it need: topologies, rights,
// settings, fail-overs, and how to show and free locks. The guarantees of
// docs/use/guarantees.md hold under its conditions. Give all clients the same
// grace and replicas; the greatest of all sessions apply to all.
//
// # Data source names
//
//	redis://[user[:password]@]host[:port][,host[:port]...][/db][?parameter=value&...]
//	rediss://...                    the same with TLS
//	valkey://..., valkeys://...     the same as redis:// and rediss://
//	unix://[user:password@]/path/of/socket[?db=0&...]
//
// These are the driver's own parameters, with their defaults in parentheses:
//
//	session_timeout  how long the store keeps a session without heartbeats,
//	                 from 100ms to 24h (10s)
//	namespace        prefix of all keys; locks in different namespaces are
//	                 independent (dlock)
//	grace            how long no lock is granted after a fail-over or restart,
//	                 from session_timeout to 24h (session_timeout)
//	replicas         how many replicas have to confirm each heartbeat, up to
//	                 16 (0)
//	empty_is_new     true: a namespace without data needs no grace; only for
//	                 tests: see docs/operate/fail-over.md (false)
//	addr             host:port of another host in the list; may be repeated
//	password_file    file with the password, read for each connection
//	sentinel_password_file  the same for the Sentinels' password
//	tls_ca           file of certificates to trust, PEM (the system's)
//	tls_cert         file of the client's certificate, PEM
//	tls_key          file of its key, PEM
//	tls_server_name  the name expected in the server's certificate (the host)
//
// Of go-redis's parameters, db, protocol (2), client_name, dial_timeout (5s),
// read_timeout (3s), write_timeout (3s), skip_verify and pool_size (8) have an
// effect, and for Sentinel master_name, username and password. Its others are
// accepted and ignored. Hosts are tried in turn, and share dial_timeout.
//
// # Errors
//
// An error matches driver.ErrUnavailable if the server is unreachable or
// temporarily rejects requests (LOADING, BUSY, READONLY, OOM, MISCONF and the
// like). Errors due to a missing permission don't match it, and those due to a
// wrong password or certificate only after a first session, as both may be about
// to change. Neither errors nor printed values contain passwords.
//
// # Requests
//
// Each change is a Lua script of the directory lua. A free lock takes two
// requests, and so does a writer that had to wait; a reader behind a reader
// takes one more. pool_size limits the calls that a session may have in flight.
// Heartbeats never wait for them.
//
// Clients in other languages run the same scripts: see
// docs/contribute/other-languages.md.
package redisdriver
