package fence

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

const header = "Dlock-Token"

// SetToken sets the header of a request that is made under a lock, such as
//
//	Dlock-Token: 34; resource="account/7"
//
// An empty resource is left out.
func SetToken(h http.Header, resource string, token int64) {
	parameters := map[string]string{}
	if resource != "" {
		parameters["resource"] = resource
	}
	h.Set(header, mime.FormatMediaType(strconv.FormatInt(token, 10), parameters))
}

// Token returns the resource and the token that SetToken put into the header. The
// resource is empty if there is none. The error matches [ErrNoToken] if there is
// no such header, and [ErrInvalid] if the header is malformed or occurs several
// times.
func Token(h http.Header) (resource string, token int64, err error) {
	values := h.Values(header)
	switch len(values) {
	case 0:
		return "", 0, fmt.Errorf("%w: the header %s is missing", ErrNoToken, header)
	case 1:
	default:
		return "", 0, fmt.Errorf("%w: there are %d headers %s", ErrInvalid, len(values), header)
	}
	text, parameters, err := mime.ParseMediaType(values[0])
	if err != nil {
		return "", 0, fmt.Errorf("%w: header %s: %v", ErrInvalid, header, err)
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("%w: header %s: %q is not a token", ErrInvalid, header, text)
	}
	resource = parameters["resource"]
	if resource == "" && strings.Contains(strings.ToLower(values[0]), "resource") { // ParseMediaType drops what it cannot decode
		return "", 0, fmt.Errorf("%w: header %s: the resource in %q cannot be decoded", ErrInvalid, header, values[0])
	}
	return resource, int64(n), nil
}

// Handler passes a request on to the handler next if its token is not stale. It
// calls next within [Marks.Check] for GET, HEAD and OPTIONS, and within
// [Marks.Do] for other methods, so the token cannot become stale during the
// call. It answers all other requests itself:
//
//	428  The request has no token.
//	400  The token or the resource is malformed, or the header names a resource
//	     other than that of the request.
//	412  The token is stale: the client's lock has passed to another holder.
//	413  The body is larger than MaxBody.
//
// The function resource returns the name of the resource that a request reads or
// writes. If it is nil, Handler takes the name from the header. The service then
// relies on its clients to send the right name, and a client that sends many
// names fills the memory.
//
// Handler reads the whole body before it calls next, so that a slow sender does
// not block the resource. A slow receiver of a long answer does block it, for as
// long as http.Server.WriteTimeout allows.
func (m *Marks) Handler(next http.Handler, resource func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, token, err := requested(r, resource)
		if err == nil {
			var body []byte
			body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, cmp.Or(m.MaxBody, 1<<20)))
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		if err == nil {
			pass := m.Do
			if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions {
				pass = m.Check
			}
			err = pass(name, token, func() error {
				next.ServeHTTP(w, r)
				return nil
			})
		}
		if err != nil {
			http.Error(w, err.Error(), status(err))
		}
	})
}

func requested(r *http.Request, resource func(*http.Request) string) (name string, token int64, err error) {
	name, token, err = Token(r.Header)
	if err != nil || resource == nil {
		return name, token, err
	}
	wanted := resource(r)
	if name != "" && name != wanted {
		return "", 0, fmt.Errorf("%w: the token is for resource %q, but the request is for %q", ErrInvalid, name, wanted)
	}
	return wanted, token, nil
}

func status(err error) int {
	var large *http.MaxBytesError
	switch {
	case errors.Is(err, ErrNoToken):
		return http.StatusPreconditionRequired
	case errors.Is(err, ErrStale):
		return http.StatusPreconditionFailed
	case errors.As(err, &large):
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusBadRequest
}
