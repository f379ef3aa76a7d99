// Package dsn has the parts that the data source names of most drivers share:
// parameters, a login, hosts, and the files of passwords and TLS. It is for
// authors of drivers.
//
// No error of this package repeats a value, because a value may be part of a
// password whose special characters are not escaped. Errors name parameters, and
// give the positions of hosts. A driver adds its own name to these errors.
//
// Do not use url.Parse for data source names: its errors repeat the whole text.
package dsn
