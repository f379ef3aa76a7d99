// Package redisdriver stores locks in Redis 7 or later, or in Valkey. It is
// tested with Redis 7.0, and its tests passed on Valkey 8.0.1; managed cloud
// services have not been tried. Import the package for its side effect and open
// a client by its name:
//
//	import _ "github.com/dlock-go/dlock/contrib/redisdriver"
//
//	client, err := dlock.Open("redis", "redis://localhost:6379?session_timeout=10s")
//
// # What Redis has to guarantee
//
// Sessions, and with them locks, have deadlines that are kept in the store. The
// driver keeps all rules of package driver under these conditions:
//
//   - All clients of a namespace have the same grace, which is at least the
//     longest session timeout of any of them. The default is the session
//     timeout. See "Fail-over" below.
//   - A master that was replaced answers no client, or enough replicas confirm
//     each heartbeat: see the parameter replicas below.
//   - The clock of the master is not set forward while locks are held: see "The
//     clock of the master" below.
//   - maxmemory-policy is noeviction or one of the volatile policies. None of
//     the driver's keys expires. With an allkeys policy and a limit on memory,
//     Redis removes locks that are held, so Connect fails.
//   - No key of the namespace is restored from an older copy while the server
//     runs (RESTORE, DEBUG RELOAD NOSAVE).
//   - No other program writes to the keys of the namespace, except with the
//     operator commands below. A program that may only publish to its channels
//     can wake waiters, but not hand a lock on.
//
// Clients' clocks don't matter, because no request carries a time.
//
// A program that has a go-redis client already uses [NewConnector] with
// dlock.NewClient. Its sessions have connections of their own, which they open
// with the settings of that client.
//
// # Data source names
//
//	redis://[user[:password]@]host[:port][/db][?parameter=value&...]
//	rediss://...                    the same with TLS
//	unix://[user:password@]/path/of/socket[?db=0&...]
//
// The driver parses these forms like go-redis. It adds the following
// parameters, with their defaults in parentheses:
//
//	session_timeout  how long the store keeps a session without heartbeats,
//	                 from 100ms to 24h (10s)
//	namespace        prefix of all keys; locks in different namespaces are
//	                 independent (dlock)
//	grace            how long no lock is granted after a fail-over or restart,
//	                 up to 24h (session_timeout)
//	replicas         how many replicas have to confirm each heartbeat, up to
//	                 16 (0)
//	empty_is_new     true: a namespace without data needs no grace, because it
//	                 is new (false). For tests. If all data are lost, there
//	                 may be two holders until the leases of earlier holders
//	                 are over
//	addr             host:port of another server of a cluster; may be repeated
//	tls_ca           file of certificates to trust, PEM (the system's)
//	tls_cert         file of the client's certificate, PEM
//	tls_key          file of its key, PEM
//	tls_server_name  the name expected in the server's certificate (the host)
//
// These parameters of go-redis are supported as well: db, protocol (2),
// client_name, dial_timeout (5s), read_timeout (3s), write_timeout (3s),
// skip_verify, and pool_size (8), which limits the calls that a session may
// have in flight. Other parameters of go-redis, such as max_retries, are
// accepted but ignored, because the driver manages connections itself and
// go-redis must not repeat requests. The connection for notices always uses
// version 2 of the protocol. A call that waits for earlier ones until its
// context ends returns an error that says so.
//
// A session opens connections as needed. It has at most pool_size + 7: one for
// notices, and six for heartbeats and other background requests, which never
// wait for calls. With the default that makes it at most 15, but usually three
// if calls come one at a time. Close ends them all and opens another one for
// its own request. With Sentinel, each dial also has a connection to a Sentinel
// until it knows the address of the master.
//
// For Sentinel, give the name of the master. The host and the addr parameters
// then name Sentinels, and the user and password before the host are the
// Sentinels'. The parameters username and password are the master's:
//
//	redis://sentinel1:26379?addr=sentinel2:26379&master_name=locks&password=secret
//
// For a cluster, name any of its servers. The driver follows MOVED replies. All
// keys of a namespace have the same hash tag, so a namespace is in a single
// slot and on a single master; use several namespaces to spread locks over a
// cluster. While the cluster moves the slot to another master, requests and
// heartbeats may fail, and Walk may miss queues. A session ends if its
// heartbeats fail for three quarters of its timeout.
//
// Several servers or Sentinels are tried in turn. They share dial_timeout, so
// that an unresponsive machine leaves time for the others. A replica refuses
// all requests of the driver, even those that only read, because its data may
// be out of date. The driver then tries the next address. Leave
// replica-read-only on: a replica that takes writes may also take a release.
//
// # How the rules are kept
//
//	1 order       one script assigns the sequence and appends the node
//	2 names       sequences never start over: see rule 3
//	3 tokens      token = sequence = max(last + 1, server time in
//	              microseconds), also after a loss of data: see "Fail-over"
//	4 all or      a create carries the name of an operation. If the reply is
//	  nothing     lost, the driver cancels the operation, which removes the node
//	              or leaves a mark that rejects a create that arrives later. No
//	              caller interrupts a request
//	5 ahead       the create script returns the queue as it was
//	6 watch       the store records which session watches which node. Every
//	              script that removes a node publishes that to these sessions.
//	              A session also checks its watched queues four times per
//	              session timeout, and after renewing its subscription, and
//	              polls them without one
//	7 delete      by sequence, and only if the node belongs to the session
//	8 session     driver.Lease, with three quarters of the session timeout,
//	  end         counted from when the heartbeat is sent. Each script that
//	              looks for nodes of other sessions first drops the sessions
//	              whose deadlines have passed, by the server's clock. A session
//	              that waits sends an extra heartbeat every two seconds
//	9 close       one script removes the nodes and the session, on a new
//	              connection, after all others were closed
//	10 methods    go-redis does not interrupt a read, so each connection serves
//	              one request at a time, and is closed when the request meets
//	              its time limit or the session ends
//	11 nothing    each connection belongs to a session and is closed with it
//	   outlives
//	12 replace    one script removes and adds the member
//	13 released   the delete script checks whether the waiter's node is in the
//	              queue. One channel per session preserves the order. A notice
//	              counts only with a proof: the released node's operation
//
// A free lock takes two requests, Lock and Unlock. So does a contended lock if
// the waiter waits for the last node in the queue, as a writer does. A reader
// waiting behind another reader takes one more request.
//
// # Fail-over
//
// A promoted replica may lack the latest locks, and a restarted server may lack
// all of them, because Redis replicates and saves its data after it has
// answered. The driver therefore notices every loss of data, and lets nobody
// have a lock until all leases of earlier holders are over. This is the grace
// period of NFSv4 (RFC 8881) and Chubby.
//
// The data belong to a generation, which is identified by the replication ID of
// the master that runs a script. A server takes a new ID when it starts and
// when it becomes a master. If the IDs differ, as they do after
//
//   - the promotion of a replica, also of one that was the master before,
//   - a restart, whether or not the server saves its data,
//   - FLUSHALL, the restore of a dump, or the loss of the disk,
//   - the move of the namespace to another server of a cluster,
//
// then the next heartbeat or request ends its session, so holders lose their
// locks, and Connect waits for the grace. Only a release for which nobody waits
// may still succeed. Connect logs the wait with log/slog. Calls of Lock wait
// meanwhile. What is left of the grace is in the store, so it runs once for all
// clients. Values stay if the data have them.
//
// Two events begin a generation without a loss: the first replica ever, and an
// hour without replicas (repl-backlog-ttl; 0 turns that off). The first session
// ever in a namespace also waits for the grace, because a new store looks like
// one that has lost everything.
//
// Tokens rise after all of this, with one exception: the clock of the new
// master is behind that of an earlier one by more than the grace, and the data
// lack about as much time as the clock does, or more than ten minutes. If the
// clock is behind when a generation begins, the generation's tokens start up to
// ten minutes ahead, so tokens also fall if the data lose this beginning.
//
// A master that is cut off from its replicas, but not from its clients, does
// not know that a replica was promoted, and would go on to renew leases. With
// replicas=k, no lease is renewed or begun unless k replicas confirm it (WAIT).
// Choose k as half the number of replicas, rounded up: one for a master with
// one or two replicas. If a replica is missing then, no lock is granted. The
// replicas must follow one master at a time, as those of Sentinel and Cluster
// do. Without the parameter, there may be two holders while such a master is
// reachable. The setting min-replicas-to-write does not help, because it
// rejects writes only once replicas have lagged for seconds.
//
// # The clock of the master
//
// Tests of this package change the clock of a real server while locks are held.
// They show the effect of a step:
//
//	back            No lock is lost, there is at most one holder, and tokens
//	                increase. The locks of a process that died before the step
//	                stay longer, by the size of the step.
//	forward, by     The store drops all sessions and grants their locks to the
//	more than the   next contenders, with higher tokens. The old holder learns of
//	session         its loss by a notice or from its next heartbeat, within an
//	timeout         eighth of the session timeout. If it is cut off from the
//	                master, there are two holders until its lease ends by its
//	                own clock. Waiters rejoin the queue with new sessions.
//
// A step forward by less than a quarter of the session timeout is harmless,
// because leases end that much earlier than sessions in the store. Configure
// the machine's time service to adjust the clock gradually.
//
// # Errors
//
// An error matches driver.ErrUnavailable if the server is unreachable or
// temporarily rejects requests (LOADING, BUSY, READONLY, OOM, MISCONF and the
// like). Errors due to a wrong password, a missing permission or a wrong
// certificate don't match it, because they are permanent. While the server is
// out of memory (OOM), sessions survive and locks can be released, but no call
// gets a node.
//
// Neither errors nor printed values contain passwords.
//
// # What is stored
//
// All keys begin with the namespace in braces. For the namespace dlock:
//
//	{dlock}:seq        string: the latest sequence, in decimal
//	{dlock}:gen        hash: "id", the generation of the data, and "grace", the
//	                   longest grace of any client, in microseconds. During a
//	                   grace: "next", the generation that begins; "rest", what
//	                   is left; "at", the time to which it was counted down
//	{dlock}:floor      string: the server time, or the latest sequence if that is
//	                   higher, at the latest heartbeat
//	{dlock}:sessions   sorted set: SESSION -> deadline, in microseconds since
//	                   1970 by the server's clock
//	{dlock}:q:QUEUE    sorted set: NAME/SESSION/OPERATION/DATA -> sequence
//	{dlock}:s:SESSION  hash: OPERATION -> SEQUENCE/QUEUE of an existing node, or
//	                   "-" for a create that was cancelled and has not arrived
//	{dlock}:w:QUEUE    hash: NAME of a node -> lines "SESSION/NAME of the
//	                   waiter's own node\n"; the empty field -> lines
//	                   "SESSION\n" of sessions that watch the whole queue. Lines
//	                   may outlast their waiters
//	{dlock}:k:QUEUE    hash: the value that was set beside the queue, and the
//	                   token of the node that set it. It stays when the queue is
//	                   empty; DEL removes it
//	{dlock}:c:SESSION  channel: CAUSE/NAME/OPERATION/QUEUE, the node has gone from
//	                   the queue. CAUSE is "r" if its holder has released it, and
//	                   "c" otherwise, where OPERATION may be empty. If NAME is
//	                   empty, the queue has changed
//
// A SESSION is any unique text without slashes and line feeds. An OPERATION is
// a text without slashes that is unique within the session. It should be hard to
// guess: who knows the operation of a held lock, and may publish, can wake a
// waiter as if the lock were released. Go clients append 64 random bits to a
// number. A name is a prefix ending in a dash, followed by the sequence in at
// least ten digits. DATA is what was passed to Create, byte by byte. Members
// added by other programs may consist of the name only; their score must be the
// sequence in the name.
//
// The key {dlock}:s:SESSION, the queue and its watches are removed when they
// are empty. The mark of a create that never arrives, because its connection
// broke, takes about 60 bytes until its session ends.
//
// # The scripts
//
// The scripts are in the directory lua. The text of a script is common.lua
// directly followed by the file of that name. Each script takes one key,
// {dlock}:seq, and the arguments listed in its first line. Its errors begin
// with DLOCKENDED, DLOCKGONE, DLOCKSTALE or DLOCKCANCELLED.
//
// With an access control list, the user needs these permissions: ~{dlock}:*
// &{dlock}:* +@connection +@scripting +@read +@write +@sortedset +@hash +info
// +time +publish +subscribe, for checking the settings +config|get, and with
// the parameter replicas +wait.
//
// # A client in another language
//
// Clients in other languages take part by running the same scripts. A test of
// this package runs the following shell commands alongside Go clients. SEQ
// stands for the sequence, which create prints first. The last line printed by
// create is the time. Its other lines, and those printed by list, are members
// of the queue.
//
//	# make the texts of the scripts
//	for f in lua/*.lua; do cat lua/common.lua $f >$(basename $f); done
//	# begin a session that the store keeps for 10 s, with a grace of 10 s. If
//	# the first line is not 0, repeat this after that many microseconds
//	redis-cli -e --eval open.lua {dlock}:seq , shell-1 10000000 10000000 0 1
//	# renew the session, every eighth of its timeout
//	redis-cli -e --eval beat.lua {dlock}:seq , shell-1 10000000
//	# join the queue of stock/42 as a writer, with operation 1 of this session
//	redis-cli -e --eval create.lua {dlock}:seq , shell-1 stock/42 1 sh-W- 'from sh' 0
//	# look at the queue until the turn has come
//	redis-cli -e --eval look.lua {dlock}:seq , shell-1 stock/42 -1
//	# release the lock, or give the wait up
//	redis-cli -e --eval delete.lua {dlock}:seq , shell-1 stock/42 SEQ r
//	# remove the node of operation 1, if the reply to create was lost
//	redis-cli -e --eval cancel.lua {dlock}:seq , shell-1 1
//	# end the session
//	redis-cli -e --eval close.lua {dlock}:seq , shell-1
//
// Clients must follow these rules:
//
//   - A writer holds the lock if its node is first in the queue. A reader,
//     whose prefix ends in -R-, holds the lock if no node ahead of it has a
//     prefix that ends in -W-. The fencing token is the sequence.
//   - A client stops using its locks three quarters of a timeout after it sent
//     the latest open or beat that was answered, or on the error DLOCKENDED,
//     which means that they are lost.
//   - A delete of a held lock ends in r, that of a waiter in c.
//   - To avoid polling, a client subscribes to the channel {dlock}:c:SESSION
//     before it begins its session, and runs watch.
//
// # For operators
//
//	show a queue, the holder first  ZRANGE {dlock}:q:stock/42 0 -1 WITHSCORES
//	show the sessions               ZRANGE {dlock}:sessions 0 -1 WITHSCORES
//	end a session                   ZADD {dlock}:sessions XX 0 SESSION
//	remove a node                   ZREMRANGEBYSCORE {dlock}:q:stock/42 SEQ SEQ
//	remove a queue                  DEL {dlock}:q:stock/42 {dlock}:w:stock/42
//
// The locks of a session ended this way are free as soon as another session
// asks for them or sends a heartbeat. The last two commands notify nobody:
// waiters and holders check for their nodes four times per session timeout, and
// notice it then. The program dlock notifies them: see dlock release.
//
// To change a password, let the server accept both passwords until all clients
// have been restarted with the new one:
//
//	add the new password            ACL SETUSER app >new
//	remove the old password         ACL SETUSER app <old
//
// If the server rejects the old password before that, a session keeps working
// with the connections it has but can't open new ones. If Unlock needs a new
// connection, it returns an error, and the node stays until the session ends.
package redisdriver
