package org.eclipse.jetty.security;

import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;

/** See SecurityHandler. Every request is one of nobody. */
public interface AuthenticationState {
    static AuthenticationState getAuthenticationState(Request request) {
        return null;
    }

    static AuthenticationState getUndeferredAuthenticationState(Request request) {
        return null;
    }

    static Succeeded login(String user, String password, Request request, Response response) {
        return null;
    }

    static boolean logout(Request request, Response response) {
        return true;
    }

    interface Deferred extends AuthenticationState {}

    interface ResponseSent extends AuthenticationState {}

    interface Succeeded extends AuthenticationState {
        String getAuthenticationType();

        UserIdentity getUserIdentity();

        boolean isUserInRole(String role);
    }
}
