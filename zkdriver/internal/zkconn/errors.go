package zkconn

import (
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"
)

// refusals are the answers by which a server guarantees that it has not carried
// out the request.
var refusals = []error{
	zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion, zk.ErrNoAuth, zk.ErrInvalidACL,
	zk.ErrNoChildrenForEphemerals, zk.ErrBadArguments, zk.ErrAPIError, zk.ErrNothing, zk.ErrReconfigDisabled,
	zk.ErrSessionExpired, zk.ErrSessionMoved, zk.ErrAuthFailed,
}

// Unanswered reports whether no answer has arrived, so that the server may or
// may not have carried out the request.
//
// zk.ErrNoServer, which means that the request was never sent, does not occur:
// dialer.Next never lets go-zookeeper run out of servers.
func Unanswered(err error) bool {
	for _, r := range refusals {
		if errors.Is(err, r) {
			return false
		}
	}
	return !isUnknownCode(err) && !errors.Is(err, zk.ErrInvalidPath)
}

// Server error codes that go-zookeeper does not name.
const (
	codeUnimplemented = "unknown error: -6"
	codeQuota         = "unknown error: -125"
	unknownCode       = "unknown error: -"
)

func isUnknownCode(err error) bool { return strings.HasPrefix(err.Error(), unknownCode) }

// Unimplemented reports whether the server is too old to know this kind of
// request.
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

// TimeoutTooShort reports whether the server has granted a timeout that does
// not fit the Config.
func TimeoutTooShort(err error) bool { return errors.Is(err, errMargin) || errors.Is(err, errTick) }

// LoginRefused reports whether the server refused a digest login.
func LoginRefused(err error) bool {
	return errors.Is(err, errLogin) || errors.Is(err, zk.ErrAuthFailed)
}
