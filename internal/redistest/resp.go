package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// maxLength limits strings and arrays. Only another protocol exceeds it.
const maxLength = 64 << 20

const maxDepth = 8

// readValue reads a RESP2 or RESP3 value as a string, int64, error, []any or
// nil.
func readValue(r *bufio.Reader, raw *bytes.Buffer, depth int) (any, error) {
	line, err := r.ReadSlice('\n')
	raw.Write(line)
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' || depth > maxDepth {
		return nil, testenv.ErrOtherProtocol
	}
	text := string(line[1 : len(line)-2])
	switch line[0] {
	case '+', ',', '(', '#':
		return text, nil
	case '-':
		return errors.New(text), nil
	case '_':
		return nil, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, testenv.ErrOtherProtocol
	}
	if line[0] == ':' {
		return n, nil
	}
	if (line[0] == '$' || line[0] == '*') && n == -1 {
		return nil, nil
	}
	if n < 0 || n > maxLength {
		return nil, testenv.ErrOtherProtocol
	}
	switch line[0] {
	case '$', '=':
		return readBulk(r, raw, n)
	case '!':
		text, err := readBulk(r, raw, n)
		if err != nil {
			return nil, err
		}
		return errors.New(text), nil
	case '*', '~', '>':
		return readArray(r, raw, n, depth)
	case '%':
		return readArray(r, raw, 2*n, depth)
	}
	return nil, testenv.ErrOtherProtocol
}

func readBulk(r *bufio.Reader, raw *bytes.Buffer, n int64) (string, error) {
	start := raw.Len()
	if _, err := io.CopyN(raw, r, n+2); err != nil {
		return "", err
	}
	return string(raw.Bytes()[start : start+int(n)]), nil
}

func readArray(r *bufio.Reader, raw *bytes.Buffer, n int64, depth int) (any, error) {
	values := []any{}
	for range n {
		v, err := readValue(r, raw, depth+1)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// Do sends a command on a new connection and returns the reply: a string,
// int64, []any or nil. An error reply fails the test.
func (s *Server) Do(args ...string) any {
	s.T.Helper()
	v, err := s.TryDo(args...)
	s.Must(err)
	return v
}

// TryDo is like [Server.Do], but returns errors, including error replies,
// instead of failing the test. It may be called from any goroutine.
func (s *Server) TryDo(args ...string) (any, error) {
	var request bytes.Buffer
	fmt.Fprintf(&request, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(a), a)
	}
	return send(s.Addr(), request.Bytes())
}

func send(addr string, request []byte) (any, error) {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := conn.Write(request); err != nil {
		return nil, err
	}
	v, err := readValue(bufio.NewReader(conn), new(bytes.Buffer), 0)
	if err != nil {
		return nil, err
	}
	if failed, ok := v.(error); ok {
		return nil, failed
	}
	return v, nil
}
