package zkconn

import (
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"
)

// refusals are answers by which a server guarantees that the request was not
// carried out.
var refusals = []error{
	zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion, zk.ErrNoAuth, zk.ErrInvalidACL,
	zk.ErrNoChildrenForEphemerals, zk.ErrBadArguments, zk.ErrAPIError, zk.ErrNothing, zk.ErrReconfigDisabled,
	zk.ErrSessionExpired, zk.ErrSessionMoved, zk.ErrAuthFailed,
}

// Unanswered reports whether an error means that no answer has arrived, so that
// the request may or may not have been carried out. (go-zookeeper's
// ErrNoServer, which means that the request was not sent, does not occur,
// because dialer.Next never lets go-zookeeper run out of servers.)
func Unanswered(err error) bool {
	for _, r := range refusals {
		if errors.Is(err, r) {
			return false
		}
	}
	return !isUnknownCode(err) && !errors.Is(err, zk.ErrInvalidPath)
}

// Server codes for which go-zookeeper has no name.
const (
	codeUnimplemented = "unknown error: -6"
	codeQuota         = "unknown error: -125"
	unknownCode       = "unknown error: -"
)

func isUnknownCode(err error) bool { return strings.HasPrefix(err.Error(), unknownCode) }

// Unimplemented reports whether the server does not know the kind of request.
func Unimplemented(err error) bool { return err.Error() == codeUnimplemented }

// Permanent reports whether the same request would fail again.
func Permanent(err error) bool {
	for _, p := range []error{
		zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrNoChildrenForEphemerals, zk.ErrBadArguments,
		zk.ErrInvalidPath, zk.ErrAPIError, zk.ErrShortBuffer, zk.ErrInvalidFlags,
	} {
		if errors.Is(err, p) {
			return true
		}
	}
	return Unimplemented(err) || err.Error() == codeQuota
}
