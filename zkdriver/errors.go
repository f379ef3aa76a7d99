package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
)

// refusals are the answers of a server that leave no doubt: the request was not carried out.
var refusals = []error{
	zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrBadVersion, zk.ErrNoAuth, zk.ErrInvalidACL,
	zk.ErrNoChildrenForEphemerals, zk.ErrBadArguments, zk.ErrAPIError, zk.ErrNothing, zk.ErrReconfigDisabled,
	zk.ErrSessionExpired, zk.ErrSessionMoved, zk.ErrAuthFailed,
}

// Unanswered tells whether nothing came back for a request: it may have been carried out or
// not. (go-zookeeper's ErrNoServer is one where it was not sent, but this driver's link never
// lets it come up.)
func Unanswered(err error) bool {
	for _, r := range refusals {
		if errors.Is(err, r) {
			return false
		}
	}
	return !isUnknownCode(err) && !errors.Is(err, zk.ErrInvalidPath)
}

// Codes of the server that go-zookeeper has no name for.
const (
	codeUnimplemented = "unknown error: -6"
	codeQuota         = "unknown error: -125"
	unknownCode       = "unknown error: -"
)

func isUnknownCode(err error) bool { return strings.HasPrefix(err.Error(), unknownCode) }

// Permanent tells whether asking again is of no use.
func Permanent(err error) bool {
	for _, p := range []error{
		zk.ErrNoAuth, zk.ErrInvalidACL, zk.ErrNoChildrenForEphemerals, zk.ErrBadArguments,
		zk.ErrInvalidPath, zk.ErrAPIError, zk.ErrShortBuffer, zk.ErrInvalidFlags,
	} {
		if errors.Is(err, p) {
			return true
		}
	}
	text := err.Error()
	return text == codeUnimplemented || text == codeQuota
}

// explain turns an error of a request into one for the caller. do says what was tried ("create
// a node in"), need which permission it takes.
func (s *session) explain(err error, do, path, need string) error {
	switch path = Printable(path); {
	case err == nil:
		return nil
	case isExplained(err): // explained already
		return err
	case errors.Is(err, zk.ErrNoNode):
		return fmt.Errorf("zkdriver: %s %s: %w: %w", do, path, driver.ErrGone, err)
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("zkdriver: %s %s: %w: %w: it takes %s: see the ACLs (getAcl), and the user and the password of the dsn, which ZooKeeper does not check when it takes them",
			do, path, fs.ErrPermission, err, need)
	case errors.Is(err, zk.ErrInvalidACL):
		return fmt.Errorf("zkdriver: %s %s: %w: the server knows no name for this client, which acl=creator needs", do, path, err)
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		return fmt.Errorf("zkdriver: %s %s: %w: a part of the path is the node of a session", do, path, err)
	case Permanent(err):
		return fmt.Errorf("zkdriver: %s %s: %w", do, path, err)
	}
	return fmt.Errorf("zkdriver: %s %s: %w: %w", do, path, driver.ErrUnavailable, err)
}

func isExplained(err error) bool {
	for _, m := range []error{driver.ErrSessionEnded, driver.ErrUnavailable, driver.ErrGone, driver.ErrBadName, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, m) {
			return true
		}
	}
	return strings.HasPrefix(err.Error(), "zkdriver: ")
}
