package natsdriver

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/driver/session/cas"
)

// permissionError says that the user has no right to a subject.
type permissionError struct{ error }

// serverError says that a setting of a stream is wrong or a server is too old.
type serverError struct{ error }

// Codes of JetStream's errors.
const (
	codeNoPeers     = 10005 // too few servers yet, while a cluster starts
	codeNoMeta      = 10008 // this server knows no leader of the cluster; others may
	codeNoConsumer  = 10014
	codeNoMessage   = 10037
	codeNoAPI       = 10039 // for the account
	codeNoStream    = 10059
	codeWrongLast   = 10071
	codeNoJetStream = 10076
	codeInProcess   = 10164 // another write of the key is under way; also said by a deposed leader
)

// apiError is an error reply of JetStream.
type apiError struct {
	Code        int `json:"err_code"`
	Status      int `json:"code"`
	Description string
}

func (e *apiError) Error() string {
	return fmt.Sprintf("JetStream: %s (code %d)", e.Description, e.Code)
}

func isCode(err error, codes ...int) bool {
	var reply *apiError
	return errors.As(err, &reply) && slices.Contains(codes, reply.Code)
}

// mark turns an error reply into one that package cas understands. Only
// permanent errors prove that JetStream has done nothing: others may come from
// a server that does not lead any more, while the leader stores the message.
func (e *apiError) mark() error {
	switch {
	case e == nil:
		return nil
	case e.Code == codeWrongLast:
		return fmt.Errorf("%w: %w", cas.ErrConflict, e)
	case isCode(e, codeNoPeers, codeNoStream, codeInProcess) || (e.Status >= 500 || e.Status == 429) && !isCode(e, codeNoAPI, codeNoJetStream):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, e)
	}
	return session.Refused(e)
}

// dialError returns the error of a connection that was not made.
func dialError(err error) error {
	logins := []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrSecureConnRequired, nats.ErrSecureConnWanted, nats.ErrNkeysNotSupported}
	if slices.ContainsFunc(logins, func(login error) bool { return errors.Is(err, login) }) || dsn.Untrusted(err) {
		return session.Login(err)
	}
	return session.Refused(fmt.Errorf("%w: %w", driver.ErrUnavailable, err))
}
