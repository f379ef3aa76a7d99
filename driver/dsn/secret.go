package dsn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// Secret is a password that may change while sessions exist. It comes from the
// data source name, from the file that the parameter password_file names, or
// from a function of the program. Printing it does not reveal it. The zero
// Secret is the empty password.
type Secret struct {
	text    func() string // the password in the login; nil without one
	login   string        // "nobody" without a login, "user" without a password
	name    string        // parameter for the file, if not password_file
	file    string
	program func(context.Context) (string, error)
}

// AddTo makes p accept the parameter password_file, and store it in s.
func (s *Secret) AddTo(p Parameters) { p["password_file"] = Text(&s.file) }

// AddAs is like AddTo, but the parameter has the given name.
func (s *Secret) AddAs(p Parameters, name string) { s.name, p[name] = name, Text(&s.file) }

// Login is like the function [Login], but stores the password in s. The text
// may also be empty, or have only a user if the password comes from elsewhere.
// Drivers whose client library parses the login do not call Login.
func (s *Secret) Login(text string) (user string, err error) {
	switch {
	case text == "":
		s.login = "nobody"
		return "", nil
	case !strings.Contains(text, ":"):
		s.login = "user"
		user, _, err = Login(text + ":")
		return user, err
	}
	user, s.text, err = Login(text)
	return user, err
}

// Check returns an error if there is more than one password, a user without a
// password, or a password without a user. The argument given says whether a
// client library has found a password in the data source name. Check stores the
// function program, which may be nil, and must return before its ctx ends.
func (s *Secret) Check(given bool, program func(context.Context) (string, error)) error {
	given = given || s.text != nil
	s.program = program
	switch {
	case given && s.file != "":
		return errors.New("a password and " + cmp.Or(s.name, "password_file") + ": leave one of them out")
	case program != nil && (given || s.file != ""):
		return errors.New("a password or password_file, although the program has a function Password: leave it out")
	case s.login == "nobody" && s.Changes():
		return errors.New("a password without a user: write user@ before the hosts")
	case s.login == "user" && !s.Changes():
		return errors.New("a user without a password (write user:password@, or user@ with password_file)")
	}
	return nil
}

// Changes reports whether Read must be called for each connection, because the
// password comes from a file or from a function.
func (s *Secret) Changes() bool { return s.file != "" || s.program != nil }

// Read returns the password. If the file cannot be used, the error is a
// [FileError] that names it. An error of the program's function matches
// driver.ErrUnavailable.
//
// A newline at the end of the file is not part of the password. Blanks at the
// ends and unprintable characters are errors: see [Check]. The mode of the file
// does not matter.
func (s *Secret) Read(ctx context.Context) (string, error) {
	switch {
	case s.program != nil:
		password, err := s.program(ctx)
		if err != nil {
			return "", fmt.Errorf("%w: the function Password: %w", driver.ErrUnavailable, err)
		}
		return password, nil
	case s.file != "":
		password, err := readPassword(s.file)
		if err != nil {
			return "", &FileError{fmt.Errorf("%s: %w", cmp.Or(s.name, "password_file"), err)}
		}
		return password, nil
	case s.text != nil:
		return s.text(), nil
	}
	return "", nil
}

func readPassword(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() { // reading a pipe may block
		return "", fmt.Errorf("%s is not a regular file", file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	password, ends := strings.CutSuffix(string(text), "\n")
	if ends {
		password = strings.TrimSuffix(password, "\r")
	}
	if password == "" {
		return "", fmt.Errorf("%s is empty", file)
	}
	if err := checkPart(password); err != nil {
		return "", fmt.Errorf("the password in %s has %w", file, err)
	}
	return password, nil
}
