package sqlstore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"hash/crc32"
	"regexp"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/driver/session"
)

var (
	// ErrUnknownSession says that the session is no longer in the database. It
	// matches driver.ErrSessionEnded.
	ErrUnknownSession = fmt.Errorf("%w: the database has dropped the session", driver.ErrSessionEnded)

	errStale = errors.New("the change came too late") // see [Generation]
)

// StatusError converts the status returned by a database function to an error.
func StatusError(status string) error {
	switch status {
	case "ok":
		return nil
	case "unknown":
		return ErrUnknownSession
	case "lost":
		return session.ErrLost // the grace after the loss is not over
	case "stale":
		return errStale
	case "gone":
		return driver.ErrGone
	case "older":
		return driver.ErrStale
	}
	return fmt.Errorf("unknown status %q: is the schema of another version?", status)
}

// IfKnown returns err. If err is nil but the statement did not find the
// session, it returns [ErrUnknownSession].
func IfKnown(known bool, err error) error {
	if err == nil && !known {
		return ErrUnknownSession
	}
	return err
}

// Version returns the version of the tables and functions that sql creates,
// which is a hash of sql without its comments.
func Version(sql string) int {
	return int(crc32.ChecksumIEEE([]byte(comment.ReplaceAllString(sql, ""))) >> 1)
}

var comment = regexp.MustCompile(`\s*--.*`)

// Untrusted reports whether the client has rejected the server's certificate or
// can't use a certificate or password file, so that a retry is pointless.
func Untrusted(err error) bool {
	return errors.As(err, new(x509.UnknownAuthorityError)) || errors.As(err, new(x509.CertificateInvalidError)) || errors.As(err, new(x509.HostnameError)) ||
		errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(*dsn.FileError))
}
