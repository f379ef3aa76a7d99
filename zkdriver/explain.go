package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// explain turns the error of a request into an error for the caller. Its text
// says what the driver tried to do, such as "create a node in", and which
// permission was needed.
func explain(err error, do, path, need string) error {
	switch path = zkconn.Printable(path); {
	case err == nil:
		return nil
	case isExplained(err):
		return err
	case errors.Is(err, zk.ErrNoNode):
		return fmt.Errorf("zkdriver: %s %s: %w: %w", do, path, driver.ErrGone, err)
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("zkdriver: %s %s: %w: %w: this needs %s: check the ACLs (getAcl), and the user and the password of the dsn; ZooKeeper does not check a password at login",
			do, path, fs.ErrPermission, err, need)
	case errors.Is(err, zk.ErrInvalidACL):
		return fmt.Errorf("zkdriver: %s %s: %w: the server knows no name for this client, which acl=creator needs", do, path, err)
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		return fmt.Errorf("zkdriver: %s %s: %w: a part of the path is the node of a session", do, path, err)
	case zkconn.Permanent(err):
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
