package zkconn

// Numbers of ZooKeeper's protocol.
const (
	opCreate          = 1
	opDelete          = 2
	opExists          = 3
	opGetData         = 4
	opSetData         = 5
	opGetACL          = 6
	opSetACL          = 7
	opSync            = 9
	opPing            = 11
	opGetChildren     = 12 // GetChildren2 in ZooKeeper, whose reply includes a Stat
	opCheck           = 13
	opMulti           = 14
	opCreateContainer = 19
	opSetAuth         = 100
	opSetWatches      = 101
	opClose           = -11
	opError           = -1 // occurs only in the reply to a Multi

	xidEvent = -1
	xidPing  = -2
	xidAuth  = -4

	codeAuth = -115 // refuses a login

	headerSize = 4 // the length of a frame
	// connectReplySize is the minimum length of a connect reply. Its fields are
	// the protocol version, the timeout, the session id, and a password of 16
	// bytes preceded by its length.
	connectReplySize = 4 + 4 + 8 + 4 + 16
	// replyStart is the size of the fields xid, zxid and error of a reply.
	replyStart = 16
	statSize   = 6*8 + 5*4

	// Offsets of zxids in frames.
	replyZxid      = headerSize + 4
	connectZxid    = headerSize + 4
	setWatchesZxid = headerSize + 8
)

const (
	// maxHandshake is far above the length of any handshake reply.
	maxHandshake = 4096
	// maxReply is far above the length of any reply the driver asks for.
	maxReply = 256 << 20
)
