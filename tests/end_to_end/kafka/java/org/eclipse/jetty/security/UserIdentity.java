package org.eclipse.jetty.security;

import java.security.Principal;

/** See SecurityHandler. */
public interface UserIdentity {
    Principal getUserPrincipal();
}
