package zkconn

import (
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"
)

// refusals are the errors with which a server guarantees that it has not
// carried out the request.
var refusals = []error{
	zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion, zk.ErrNoAuth, zk.ErrInvalidACL,
	zk.ErrNoChildrenForEphemerals, zk.ErrBadArguments, zk.ErrAPIError, zk.ErrNothing, zk.ErrReconfigDisabled,
	zk.ErrSessionExpired, zk.ErrSessionMoved, zk.ErrAuthFailed,
}

// Unanswered reports whether err means that no answer has arrived, so that the
// server may or may not have carried out the request.
//
// zk.ErrNoServer, by which go-zookeeper reports that it never sent the request,
// does not occur, because dialer.Next always returns a server.
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

// Unimplemented reports whether err means that the server is too old to know
// the request.
func Unimplemented(err error) bool { return err.Error() == codeUnimplemented }

// Permanent reports whether the same request would fail with err again.
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

// TimeoutTooShort reports whether err means that the session timeout granted by
// the server is too short for the lease margin or the tick of the Config.
func TimeoutTooShort(err error) bool { return errors.Is(err, errMargin) || errors.Is(err, errTick) }

// LoginRefused reports whether err means that the server has refused a digest
// login.
func LoginRefused(err error) bool {
	return errors.Is(err, errLogin) || errors.Is(err, zk.ErrAuthFailed)
}
