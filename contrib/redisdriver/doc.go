// Package redisdriver keeps locks in Redis 7 or a later version. It is tested with
// Redis 7.0. Valkey, and services that a cloud manages, were not tried. Import the
// package for its side effect and open a client by its name:
//
//	import _ "github.com/dlock-go/dlock/contrib/redisdriver"
//
//	client, err := dlock.Open("redis", "redis://localhost:6379?session_timeout=10s")
//
// # What Redis has to guarantee
//
// A session of this driver has a deadline in the store, and so have its locks. The
// driver keeps all rules of package driver if these conditions hold:
//
//   - There is one master, with appendonly yes, appendfsync always and
//     no-appendfsync-on-rewrite no. With any other setting a crash may take away locks
//     that are held, and may grant them again. It may also bring back a lock that was
//     released: see "Fail-over" below. The driver reads these settings before the first
//     session of a connector. It logs by log/slog what they do not protect.
//   - No replica takes the place of the master. Redis replicates asynchronously, so the
//     new master may lack the latest locks: see "Fail-over" below.
//   - The clock of the master is not set forward while locks are held: see "The clock
//     of the master" below.
//   - The memory of the server is not full, or maxmemory-policy is noeviction or one of
//     the policies that begin with volatile. No key of the driver has an expiry.
//   - No other program writes to the keys of the namespace or publishes to its
//     channels, except by the statements that this page gives to operators.
//
// Clocks of clients do not matter: no request carries an instant.
//
// # Data source names
//
//	redis://[user[:password]@]host[:port][/db][?parameter=value&...]
//	rediss://...                    the same with TLS
//	unix://[user:password@]/path/of/socket[?db=0&...]
//
// The driver reads these forms as go-redis does. The parameters of this driver are
// listed below, with their defaults in parentheses:
//
//	session_timeout  how long the store keeps a session that it does not hear from,
//	                 from 100ms to 24h (10s)
//	namespace        the beginning of all keys; locks of two namespaces have nothing
//	                 to do with each other (dlock)
//	addr             host:port of another server of a cluster; may be repeated
//	tls_ca           file of certificates to trust, PEM (the system's)
//	tls_cert         file of the client's certificate, PEM
//	tls_key          file of its key, PEM
//	tls_server_name  the name expected in the server's certificate (the host)
//
// These parameters of go-redis are accepted as well: db, protocol (2), client_name,
// dial_timeout (5s), read_timeout (3s), write_timeout (3s), skip_verify, and pool_size
// (8), which is the number of calls of a session that are on their way at once.
// Other parameters of go-redis, such as max_retries, are accepted and do nothing: the
// driver manages the connections itself, and go-redis must repeat no request.
// The connection for notices uses version 2 of the protocol in any case.
//
// A session opens a connection when it needs one more. It has at most pool_size + 6:
// one for notices, and five for heartbeats and the like, which wait for no call. With
// the default that makes it at most 14, and usually three if it makes one call at a
// time. Close ends them all, and then opens one for its own request. With Sentinel,
// each dial also has a connection with a Sentinel until it knows the address of the
// master.
//
// For Sentinel, give the name of the master. The host and the parameters addr name
// Sentinels then. The user and the password before the host are those of the
// Sentinels. The parameters username and password are those of the master:
//
//	redis://sentinel1:26379?addr=sentinel2:26379&master_name=locks&password=secret
//
// Of a cluster, any server will do. The driver follows the reply MOVED. All keys of a
// namespace have one hash tag, so a namespace is in one slot and on one master. Use
// several namespaces to spread locks over a cluster. While the cluster moves the slot
// to another master, requests and heartbeats may fail, and Walk may miss queues. A
// session ends if its heartbeats fail for three quarters of its timeout.
//
// If there are several servers or Sentinels, the driver tries one after the other. They
// share dial_timeout, so a machine that does not answer leaves time for the others.
// A replica refuses each request of the driver, also one that only reads, because its
// data may be old. Then the driver tries the next address.
//
// # How the rules are kept
//
//	1 order       one script gives a node its sequence and appends it
//	2 names       the sequence never starts over: see rule 3
//	3 tokens      token = sequence = max(last + 1, the server's time in microseconds).
//	              It rises even if the server loses all data, as long as its clock is
//	              right
//	4 all or      a create carries the number of an operation. If its answer was lost,
//	  nothing     the driver cancels the operation. That removes the node, or leaves a
//	              mark that refuses a create which arrives later
//	5 ahead       the script of the create returns the queue as it was
//	6 watch       the store keeps which session watches which node. Each script that
//	              removes a node publishes that to those sessions. A session also looks
//	              at its watched queues four times in a session timeout, and when its
//	              subscription was renewed
//	7 delete      by sequence, and only if the node belongs to the session
//	8 session     driver.Lease, with three quarters of the session timeout; it counts
//	  end         from the sending of the heartbeat. Each script that looks for
//	              nodes of other sessions first drops the sessions whose deadlines
//	              have passed, by the server's clock
//	9 close       one script removes the nodes and the session. It uses a connection of
//	              its own, after all other connections were closed
//	10 methods    go-redis does not interrupt a read. So each connection serves one
//	              request at a time, and is closed if the context of the request ends
//	11 nothing    each connection belongs to its session, and is closed with it
//	   outlives
//	12 replace    one script removes and adds the member
//	13 released   the script of the delete looks whether the waiter's node is in the
//	              queue. One channel for each session keeps the order
//
// A free lock takes two requests, Lock and Unlock. A contended lock takes the same
// two if the waiter waits for the last node of the queue, as a writer does. A reader
// that waits behind another reader takes one request more.
//
// Redis cannot give these: locks that survive a fail-over, and locks that survive the
// loss of the master's disk.
//
// # Fail-over
//
// A replica may lack the latest writes when it is promoted. Then it does not know the
// node of a holder, and grants the lock to the next contender, while the old holder
// still believes that it holds the lock. The old holder learns of its loss with its
// next heartbeat, within an eighth of the session timeout if it reaches the new
// master. The token of the new holder is higher, unless the clock of the new master
// is behind. So a resource that compares tokens stays safe. A test of this package
// shows both. If two holders are not acceptable without such a resource, use a store
// with consensus, such as ZooKeeper or etcd.
//
// The latest write may also be the release of a lock. Then the new master still has the
// node. It blocks other contenders until its session ends, or until an operator removes
// it.
//
// The setting min-replicas-to-write does not change this: it refuses writes if
// replicas lag for seconds, and not for a single write.
//
// # The clock of the master
//
// Tests of this package set the clock of a real server while locks are held. They show
// what a step of the clock does:
//
//	back            No lock is lost. There is one holder at most, and tokens rise. The
//	                locks of a process that died before the step stay longer, by the
//	                size of the step.
//	forward, by     The store drops all sessions, and grants their locks to the next
//	more than the   contenders. The token of the new holder is higher. The old holder
//	session         learns of its loss by a notice or with its next heartbeat, within an
//	timeout         eighth of the session timeout. If it is cut off from the master, its
//	                lease ends by its own clock. Until then there are two holders.
//	                Waiters join the queue again by themselves, with new sessions.
//
// A step forward by less than a quarter of the session timeout breaks nothing, because
// a lease ends that much earlier than the session in the store. Let the time service of
// the machine slow down or speed up the clock, and not set it.
//
// # Errors
//
// An error matches driver.ErrUnavailable if the server cannot be reached or refuses
// requests for a time (LOADING, BUSY, READONLY, OOM, MISCONF and the like). A wrong
// password, a missing permission and a wrong certificate do not pass by themselves,
// so these errors do not match it. If the memory of the server is full (OOM), sessions
// live on, and locks can be released. But no call gets a node.
//
// No error and no printed value holds a password.
//
// # What is stored
//
// All keys begin with the namespace in braces. For the namespace dlock:
//
//	{dlock}:seq        string: the latest sequence, in decimal digits
//	{dlock}:sessions   sorted set: SESSION -> deadline, in microseconds since 1970
//	                   by the server's clock
//	{dlock}:q:QUEUE    sorted set: NAME/SESSION/OPERATION/DATA -> sequence
//	{dlock}:s:SESSION  hash: OPERATION -> SEQUENCE/QUEUE of a node that exists, or
//	                   "-" for a create that was cancelled before it came
//	{dlock}:w:QUEUE    hash: NAME of a node -> lines "SESSION/NAME of the waiter's own
//	                   node\n"; the empty field -> lines "SESSION\n" of sessions that
//	                   watch the whole queue. A line may stay after the waiter has gone
//	{dlock}:c:SESSION  channel: CAUSE/NAME/QUEUE, the node has gone from the queue.
//	                   CAUSE is "r" if its holder has released it, and "c" otherwise.
//	                   If NAME is empty, the queue has changed
//
// A SESSION is any text without slashes and line feeds that is new for each session.
// An OPERATION is a decimal number that is new for each create of the session. A name
// is a prefix that ends in a dash, and the sequence in at least ten digits. DATA is
// the data that Create was given, byte by byte. A member that another program has put
// into a queue may consist of the name only, and has to have the sequence in its name
// as its score.
//
// The key {dlock}:s:SESSION, the queue and its watches are removed when they are
// empty. A mark of a cancelled create takes about 50 bytes until its session ends.
//
// # The scripts
//
// The scripts are the files of the directory lua. The text of a script is the file
// common.lua and, right behind it, the file of that name. Each takes one key,
// {dlock}:seq, and the arguments that its first line lists. Errors begin with
// DLOCKENDED, DLOCKGONE or DLOCKCANCELLED.
//
// With an access control list, the user needs these permissions: ~{dlock}:* &{dlock}:*
// +@connection +@scripting +@read +@write +@sortedset +@hash +time +publish +subscribe
// and, for the check of the settings, +config|get.
//
// # A client in another language
//
// A client in another language takes part with the same scripts. A test of this package
// runs the following commands of a shell beside Go clients. SEQ stands for the sequence
// that the command create prints first. The other lines that create prints, and those
// of list, are members of the queue.
//
//	# make the texts of the scripts
//	for f in lua/*.lua; do cat lua/common.lua $f >$(basename $f); done
//	# begin a session that the store keeps for 10 s
//	redis-cli -e --eval open.lua {dlock}:seq , shell-1 10000000
//	# renew the session, every eighth of its timeout
//	redis-cli -e --eval beat.lua {dlock}:seq , shell-1 10000000
//	# join the queue of stock/42 as a writer, with operation 1 of this session
//	redis-cli -e --eval create.lua {dlock}:seq , shell-1 stock/42 1 sh-W- 'from sh' 0
//	# look at the queue until the turn has come
//	redis-cli -e --eval list.lua {dlock}:seq , shell-1 stock/42
//	# release the lock, or give the wait up
//	redis-cli -e --eval delete.lua {dlock}:seq , shell-1 stock/42 SEQ r
//	# remove the node of operation 1, if the reply to create was lost
//	redis-cli -e --eval cancel.lua {dlock}:seq , shell-1 1
//	# end the session
//	redis-cli -e --eval close.lua {dlock}:seq , shell-1
//
// The client has to keep these rules:
//
//   - A writer holds the lock if its node is the first of the queue. A reader, whose
//     prefix ends in -R-, holds the lock if no node ahead of its own has a prefix that
//     ends in -W-. A fencing token is the sequence.
//   - Three quarters of a timeout after it has sent the latest open or beat that was
//     answered, the client stops using its locks. The error DLOCKENDED says that it has
//     lost them.
//   - A delete of a lock that was held ends in r. A delete of a waiter ends in c.
//   - A client that does not want to look again and again subscribes to the channel
//     {dlock}:c:SESSION before it begins its session, and runs watch.
//
// # For operators
//
//	show a queue, the holder first  ZRANGE {dlock}:q:stock/42 0 -1 WITHSCORES
//	show the sessions               ZRANGE {dlock}:sessions 0 -1 WITHSCORES
//	end a session                   ZADD {dlock}:sessions XX 0 SESSION
//	remove a node                   ZREMRANGEBYSCORE {dlock}:q:stock/42 SEQ SEQ
//	remove a queue                  DEL {dlock}:q:stock/42 {dlock}:w:stock/42
//
// The locks of a session that was ended are free as soon as another session asks for
// them, or sends a heartbeat. The last two statements tell no session. Waiters and
// holders look for their nodes four times in a session timeout, and notice it then.
//
// To change a password, let the server accept both passwords until all clients have
// been restarted with the new one:
//
//	add the new password            ACL SETUSER app >new
//	remove the old password         ACL SETUSER app <old
//
// If the server refuses the old password before that, a session goes on with the
// connections that it has, and cannot open others. If Unlock needs a new connection, it
// returns an error, and the node stays until the session ends.
package redisdriver
