package sqltest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatal(args ...any) {
	r.errors = append(r.errors, fmt.Sprint(args...))
	runtime.Goexit()
}

// expect checks that helper reports one error, which contains want, or none if
// want is empty.
func expect(t *testing.T, want string, helper func(t testing.TB)) {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		helper(r)
	}()
	<-done
	if want == "" && len(r.errors) == 0 {
		return
	}
	if want == "" || len(r.errors) != 1 || !strings.Contains(r.errors[0], want) {
		t.Errorf("the helper reports %q, want %q", r.errors, want)
	}
}

type refusing struct{ err error }

func (d refusing) OpenConnector(string) (driver.Connector, error)  { return d, nil }
func (d refusing) Connect(context.Context) (driver.Session, error) { return nil, d.err }

func TestRefusedSeesEachDifference(t *testing.T) {
	wrong := refusing{errors.New("wrong password of app")}
	down := refusing{fmt.Errorf("connection refused: %w", driver.ErrUnavailable)}
	for _, c := range []struct {
		driver driver.Driver
		want   Refusal
		says   string
	}{
		{wrong, Refusal{Texts: []string{"wrong", "app"}, Secrets: []string{"horse"}}, ""},
		{down, Refusal{Unavailable: true, Texts: []string{"refused"}}, ""},
		{wrong, Refusal{Unavailable: true}, "ErrUnavailable) is false"},
		{down, Refusal{}, "ErrUnavailable) is true"},
		{wrong, Refusal{Texts: []string{"wrong", "user"}}, `does not contain "user"`},
		{wrong, Refusal{Secrets: []string{"horse", "app"}}, "repeats the password"},
		{memdriver.Driver{}, Refusal{}, "Connect succeeded"},
	} {
		expect(t, c.says, func(r testing.TB) {
			if err := Refused(r, c.driver, "", c.want); err == nil {
				t.Error("no error is returned")
			}
		})
	}
}
