package dsn

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// URL holds the parts of user:password@host:port,host:port/path?query, the text
// after the scheme. The parts are not unescaped.
type URL struct {
	Login string   // user:password; may be empty
	Hosts []string // each as host:port
	Path  string   // with its slash; may be empty
	Query string
}

// Check returns an error if a data source name, or a decoded part of a URL, has
// an unprintable character or a blank at either end. Such a character, for
// example the newline of a secret made by echo, is invisible, but may make the
// text name another store. dlock.Open calls Check for every driver.
func Check(text string) error {
	parts := []string{text}
	if scheme, _, found := strings.Cut(text, "://"); found && !strings.ContainsAny(scheme, ":@(/?") {
		parts = append(parts, strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(":/?&=@", r) })...)
		for i, part := range parts {
			if decoded, err := url.PathUnescape(part); err == nil {
				parts[i] = decoded
			}
		}
	}
	for _, part := range parts {
		if err := checkPart(part); err != nil {
			return err
		}
	}
	return nil
}

func checkPart(part string) error {
	if strings.ContainsFunc(part, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return errors.New("an unprintable character, such as a newline")
	}
	if strings.TrimSpace(part) != part {
		return errors.New("a blank at the beginning or the end")
	}
	return nil
}

// Split splits text into its parts, and gives hosts without a port the default
// one. It returns an error if a password contains an unescaped slash, question
// mark or at sign, or if [Hosts] returns one.
func Split(text, defaultPort string) (u URL, err error) {
	var hosts string
	hosts, u.Query, _ = strings.Cut(text, "?")
	if i := strings.IndexByte(hosts, '/'); i >= 0 {
		hosts, u.Path = hosts[:i], hosts[i:]
	}
	if strings.Contains(u.Path, "@") || strings.Contains(u.Query, "@") {
		return URL{}, errors.New("an at sign after the hosts: in a user or a password, write / as %2F, ? as %3F and @ as %40; " +
			"in a parameter, write @ as %40; the path cannot have one")
	}
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		u.Login, hosts = hosts[:i], hosts[i+1:]
		if u.Login == "" {
			return URL{}, errors.New("the user is empty")
		}
	}
	u.Hosts, err = Hosts(hosts, defaultPort)
	return u, err
}

// Login decodes user:password. The password is returned as a function, so that
// printing a struct that holds it does not reveal it.
func Login(text string) (user string, password func() string, err error) {
	user, secret, found := strings.Cut(text, ":")
	if !found {
		return "", nil, errors.New("a user without a password (write user:password@)")
	}
	if user, err = url.PathUnescape(user); err != nil {
		return "", nil, errors.New("the user has a bad percent escape")
	}
	if secret, err = url.PathUnescape(secret); err != nil {
		return "", nil, errors.New("the password has a bad percent escape")
	}
	if user == "" {
		return "", nil, errors.New("the user is empty")
	}
	return user, func() string { return secret }, nil
}

// Hosts splits a comma-separated list and returns each host as host:port. An
// IPv6 address must be in brackets.
func Hosts(list, defaultPort string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return nil, errors.New("no host")
	}
	var hosts []string
	for i, text := range strings.Split(list, ",") {
		host, err := parseHost(strings.TrimSpace(text), defaultPort)
		if err != nil {
			return nil, fmt.Errorf("host %d: %w", i+1, err)
		}
		hosts = append(hosts, host)
	}
	return hosts, nil
}

func parseHost(text, defaultPort string) (string, error) {
	host, port := text, defaultPort
	if strings.HasPrefix(text, "[") {
		var after string
		var err error
		if host, after, err = parseIPv6(text); err != nil {
			return "", err
		}
		if after != "" {
			if after[0] != ':' {
				return "", errors.New("something other than a port follows the brackets")
			}
			port = after[1:]
		}
	} else {
		switch strings.Count(text, ":") {
		case 0:
		case 1:
			host, port, _ = strings.Cut(text, ":")
		default:
			return "", errors.New("more than one colon: an IPv6 address needs brackets, as in [::1]:" + defaultPort)
		}
		if host == "" {
			return "", errors.New("the name is empty")
		}
		if strings.ContainsFunc(host, notInHosts) {
			return "", errors.New("the name has a character that host names do not have")
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
		return "", errors.New("the port is not a number from 1 to 65535")
	}
	return host + ":" + port, nil
}

func parseIPv6(text string) (host, after string, err error) {
	inside, after, found := strings.Cut(text[1:], "]")
	if !found {
		return "", "", errors.New("a bracket is not closed")
	}
	if a, err := netip.ParseAddr(inside); err != nil || !a.Is6() {
		return "", "", errors.New("the text in the brackets is not an IPv6 address")
	}
	if strings.ContainsFunc(inside, func(c rune) bool { return notInHosts(c) && c != ':' && c != '%' }) {
		return "", "", errors.New("the zone has a character that zones do not have")
	}
	return "[" + inside + "]", after, nil
}

func notInHosts(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._", c)
}
