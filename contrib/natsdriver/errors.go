package natsdriver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"github.com/nats-io/nats.go"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/driver/session/cas"
)

// permissionError says that the user has no right to a subject.
type permissionError struct {
	subject string
	cause   error
}

func (e permissionError) Error() string {
	return fmt.Sprintf("the user lacks a permission for the subject %q, see the package documentation of natsdriver: %v", e.subject, e.cause)
}

func isDenied(err error) bool { return errors.Is(err, nats.ErrPermissionViolation) }

// Codes of JetStream's errors.
const (
	codeNoConsumer    = 10014
	codeNoMessage     = 10037
	codeNoAPI         = 10039 // of the account
	codeTooLarge      = 10054
	codeNoStream      = 10059
	codeWrongLast     = 10071
	codeNoJetStream   = 10076
	codeInProcess     = 10164 // another write of the key is under way
	codeIncomplete    = 10176 // the first message of the batch is missing
	codeManyBatches   = 10210
	codeConsumerThere = 10148
)

// apiError is an error reply of JetStream.
type apiError struct {
	Code        int    `json:"err_code"`
	Status      int    `json:"code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("JetStream: %s (code %d)", e.Description, e.Code)
}

func isCode(err error, code int) bool {
	var reply *apiError
	return errors.As(err, &reply) && reply.Code == code
}

// mark returns an error reply as the engine understands it. JetStream has done
// nothing.
func (e *apiError) mark() error {
	if e == nil {
		return nil
	}
	var err error = e
	switch {
	case e.Code == codeWrongLast:
		return fmt.Errorf("%w: %w", cas.ErrConflict, e)
	case e.Code == codeTooLarge:
		err = fmt.Errorf("the queue has too many nodes, or max_msg_size of the stream is too small: %w", e)
	case (e.Status >= 500 || e.Status == 429) && e.Code != codeNoAPI && e.Code != codeNoJetStream || e.Code == codeIncomplete || e.Code == codeInProcess:
		err = fmt.Errorf("%w: %w", driver.ErrUnavailable, e)
	}
	return session.Refused(err)
}

// requestError returns the error of a request without an answer.
func requestError(err error) error {
	switch {
	case errors.As(err, new(permissionError)), errors.Is(err, driver.ErrUnavailable):
		return err
	case errors.Is(err, nats.ErrMaxPayload):
		return session.Refused(fmt.Errorf("the queue has too many nodes for the server's max_payload: %w", err))
	case errors.Is(err, nats.ErrNoResponders):
		return session.Refused(fmt.Errorf("%w: no stream listens, or JetStream is off: %w", driver.ErrUnavailable, err))
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed):
		return session.Refused(fmt.Errorf("%w: %w", driver.ErrUnavailable, err))
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// dialError returns the error of a connection that was not made.
func dialError(err error) error {
	for _, permanent := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrSecureConnRequired, nats.ErrSecureConnWanted, nats.ErrNkeysNotSupported} {
		if errors.Is(err, permanent) {
			return err
		}
	}
	var (
		verification *tls.CertificateVerificationError
		header       tls.RecordHeaderError
		remote       *net.OpError
		host         x509.HostnameError
		file         *dsn.FileError
	)
	if errors.As(err, &verification) || errors.As(err, &header) || errors.As(err, &host) || errors.As(err, &file) ||
		errors.As(err, &remote) && remote.Op == "remote error" { // a TLS alert from the server
		return err
	}
	if errors.Is(err, context.Canceled) { // the caller's time is up
		err = errors.New(err.Error())
	}
	return session.Refused(fmt.Errorf("%w: %w", driver.ErrUnavailable, err))
}
