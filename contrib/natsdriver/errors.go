package natsdriver

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/driver/session/cas"
)

// serverError says that a setting of a stream is wrong or a server is too old.
type serverError struct{ error }

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

func isOff(err error) bool {
	return isAny(err, jetstream.ErrJetStreamNotEnabled, jetstream.ErrJetStreamNotEnabledForAccount)
}

// mark classifies an error reply. Only permanent errors prove that no leader
// stores the message.
func mark(e *jetstream.APIError) error {
	const noPeers = 10005 // too few servers yet, while a cluster starts
	switch {
	case e == nil:
		return nil
	case e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence, e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		return fmt.Errorf("%w: %w", cas.ErrConflict, e)
	case e.Code != 400 && !isOff(e) || e.ErrorCode == noPeers:
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, e)
	}
	return session.Refused(e)
}

func dialError(err error) error {
	if dsn.Untrusted(err) || errors.As(err, new(serverError)) || isAny(err, nats.ErrAuthorization, nats.ErrAuthExpired,
		nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrSecureConnWanted, nats.ErrNkeysNotSupported) {
		return session.Login(err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}
