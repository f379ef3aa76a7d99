// Package redisdriver stores locks in Redis 7 or later, or in Valkey. It is
// tested with Redis 7.0, and its tests passed on Valkey 8.0.1; managed cloud
// services have not been tried. Import the package for its side effect and open
// a client by its name:
//
//	import _ "github.com/dlock-go/dlock/contrib/redisdriver"
//
//	client, err := dlock.Open("redis", "redis://localhost:6379?session_timeout=10s")
//
// A program that has a go-redis client already uses [NewConnector] with
// dlock.NewClient.
//
// # Guarantees
//
// The guarantees of docs/use/guarantees.md hold under these conditions:
//
//   - All clients of a namespace have the same grace, at least the longest
//     session timeout of any of them. While their sessions exist, the longest
//     grace and the greatest number of replicas count for all.
//   - A master that was replaced answers no client, or replicas is set to half
//     the number of replicas, rounded up. The replicas must follow one master at
//     a time, as those of Sentinel and Cluster do. The server's setting
//     min-replicas-to-write does not help, because it rejects writes only once
//     replicas have lagged for seconds.
//   - The clock of the master is not set forward by a quarter of the session
//     timeout or more. Clients' clocks may differ from it.
//   - maxmemory-policy is noeviction or begins with volatile. With an allkeys
//     policy and a limit on memory, Redis removes locks that are held, so
//     Connect fails, and a session that sees it ends.
//   - replica-read-only is on, or a replica might take a release.
//   - No key of the namespace is restored from an older copy while the server
//     runs, or by SWAPDB after other keys were in use, and no other program
//     writes to one. A program that may only publish to the channels can wake
//     waiters, but not hand a lock on.
//
// docs/operate/fail-over.md says which events cost all locks, and what the
// grace is.
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
//	empty_is_new     true: a namespace without data needs no grace; for tests
//	                 only, because a lock may have two holders if all data are
//	                 lost (false)
//	addr             host:port of another host in the list; may be repeated
//	tls_ca           file of certificates to trust, PEM (the system's)
//	tls_cert         file of the client's certificate, PEM
//	tls_key          file of its key, PEM
//	tls_server_name  the name expected in the server's certificate (the host)
//
// Of go-redis's parameters, db, protocol (2), client_name, dial_timeout (5s),
// read_timeout (3s), write_timeout (3s), skip_verify and pool_size (8) have an
// effect. Its others, such as max_retries, are accepted and ignored.
//
// For a cluster, name any of its servers. A namespace is on a single master, so
// use several namespaces to spread locks over a cluster. For Sentinel, the hosts
// are Sentinels, and the user and password before them are theirs; username and
// password are the master's:
//
//	redis://sentinel1:26379,sentinel2:26379?master_name=locks&password=secret&replicas=1
//
// # Errors
//
// An error matches driver.ErrUnavailable if the server is unreachable or
// temporarily rejects requests (LOADING, BUSY, READONLY, OOM, MISCONF and the
// like). Errors due to a wrong password, a missing permission or a wrong
// certificate don't match it. While the server is out of memory, sessions
// survive and locks can be released, but no call gets a node. Neither errors nor
// printed values contain passwords.
//
// # Connections and requests
//
// A free lock takes two requests. So does a lock that had to wait for the last
// node in the queue, as a writer does; a reader behind a reader takes one more.
// pool_size limits the calls that a session may have in flight. Heartbeats and
// other background requests never wait for them, so a session has at most
// pool_size + 7 connections, and usually three. It asks Sentinels for the master
// four times in a session timeout. Addresses are tried in turn, and share
// dial_timeout. A replica refuses the driver's requests, and the driver tries
// the next address.
//
// # The scripts
//
// Each change is a Lua script of the directory lua. With an access control list,
// the user needs these permissions: ~{dlock}:* &{dlock}:* +@connection
// +@scripting +@read +@write +@sortedset +@hash +info +time +publish +subscribe,
// for checking the settings +config|get, and with the parameter replicas +wait.
//
// To change a password, let the server accept both until all clients have been
// restarted with the new one. Without the old one, a session keeps the
// connections it has but can't open new ones.
//
// docs/operate/operating.md shows and frees locks with redis-cli. Clients in
// other languages run the same scripts: see docs/contribute/other-languages.md.
package redisdriver
