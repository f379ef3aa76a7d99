// Package natsdriver stores locks in NATS JetStream. It needs NATS 2.12 or later
// and is tested with 2.15. Import the package for its side effect and open a
// client by its name:
//
//	import _ "github.com/dlock-go/dlock/contrib/natsdriver"
//
//	client, err := dlock.Open("nats", "nats://nats1,nats2,nats3/locks?replicas=3")
//
// A program that has a *nats.Conn already uses [NewConnector] with
// dlock.NewClient.
//
// # Guarantees
//
// The guarantees of docs/use/guarantees.md hold under these conditions:
//
//   - All clients of a stream have the same grace, at least the longest session
//     timeout of any of them.
//   - In a cluster, a power cut takes back nothing that was answered: the stream
//     has three or five replicas, of which no majority loses power at once, or
//     the servers have sync_interval: always. A killed process loses nothing.
//     Each restart of a server without a cluster counts as a loss of data.
//   - No snapshot of the stream is restored that is younger than a heartbeat, a
//     quarter of the session timeout.
//   - The number of replicas is changed only while no client runs.
//
// After a loss of data, a restore, or a removal of the stream, sessions end at
// their next heartbeat, and new ones wait for the grace. No clock matters for
// this, but tokens go on to rise only if the clock of the stream's leader is not
// behind the time at which the first session on the lost data began.
//
// # Data source names
//
//	nats://[user[:password]@|token@]host[:port][,host...][/stream][?parameter=value&...]
//	tls://...                       the same with TLS
//
// The default port is 4222, and the stream is named dlock. The driver creates
// the stream if it does not exist. These are the parameters, with their defaults
// in parentheses:
//
//	session_timeout  how long a session lives without heartbeats, from 1s to
//	                 24h; in a cluster longer than an election, 10 s (20s)
//	grace            how long no lock is granted after a loss of data, or if the
//	                 stream is new, from session_timeout to 24h (session_timeout)
//	replicas         of a new stream, up to 5; one that exists must have as many
//	                 (1 for a new stream)
//	empty_is_new     true: a stream without messages needs no grace; for tests
//	                 only, because a lock may have two holders if the stream is
//	                 removed (false)
//	password_file    file with the password of the user before the hosts
//	creds            file with the user's JWT and seed
//	nkey_seed        file with the seed of the user's nkey
//	inbox_prefix     of the subjects for answers (_INBOX)
//	tls_ca           file of certificates to trust, PEM (the system's)
//	tls_cert         file of the client's certificate, PEM
//	tls_key          file of its key, PEM
//	tls_server_name  the name expected in the server's certificate (the host)
//
// # Rights
//
// With the stream locks, a user needs to publish to locks.q.>, locks.s.> and
// locks.generation, and to $JS.API.STREAM.INFO.locks,
// $JS.API.STREAM.MSG.GET.locks and, unless there is a cluster,
// $JS.API.CONSUMER.CREATE.locks.generation; to create the stream,
// $JS.API.STREAM.CREATE.locks. It subscribes to locks.n.> and to its inboxes. An
// error about a missing permission names the subject, and does not match
// driver.ErrUnavailable.
//
// # Connections and requests
//
// A session has one connection, and a heartbeat takes two requests. A free lock
// takes a write and a read, and its release a write. A queue is one message that
// each change writes anew, and max_payload, 1 MB by default, limits it to about
// 4,000 nodes. See package cas for the layout.
package natsdriver
