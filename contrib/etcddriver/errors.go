package etcddriver

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/driver/session"
)

var errExpired = fmt.Errorf("%w: etcd has ended the lease", driver.ErrSessionEnded)

// classify makes temporary errors match driver.ErrUnavailable.
func classify(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrGone), errors.Is(err, driver.ErrStale), errors.Is(err, driver.ErrSessionEnded):
		return err
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return errExpired
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, ctx.Err(), err)
	case code(err) == codes.PermissionDenied:
		return denied(err, "of the prefix")
	case errors.Is(err, rpctypes.ErrAuthFailed), dsn.Untrusted(err):
		return session.Login(err)
	case isPermanent(err):
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

func denied(err error, keys string) error {
	return fmt.Errorf("%w; the role of the user needs readwrite for all keys %s", err, keys)
}

// isPermanent reports whether retrying after err is pointless. After an expired
// login, the client logs in again.
func isPermanent(err error) bool {
	if dsn.Untrusted(err) {
		return true
	}
	if errors.Is(err, rpctypes.ErrAuthOldRevision) {
		return false
	}
	switch code(err) {
	case codes.InvalidArgument, codes.PermissionDenied, codes.FailedPrecondition, codes.Unimplemented, codes.NotFound:
		return true
	}
	return false
}

// isRefusal reports whether etcd has rejected a request and changed nothing.
func isRefusal(err error) bool {
	return err != nil && (isPermanent(err) || errors.Is(err, rpctypes.ErrTooManyRequests))
}

func code(err error) codes.Code {
	if e := (rpctypes.EtcdError{}); errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// outOfTime reports whether the server itself gave up, which it signals by a
// bare context error.
func outOfTime(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.Unknown && s.Message() == context.DeadlineExceeded.Error()
}
